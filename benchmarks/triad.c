/* McCalpin's triad in fp32: a = b + 3 c on three arrays of argv[1] bytes, argv[2] times; prints the seconds of the fastest.
   Pages are huge where the system has them, as those of dlbench's stream are, and all are there before the clock runs. */

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static float *array(size_t count) {
    float *values = mmap(NULL, count * sizeof *values, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (values == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    madvise(values, count * sizeof *values, MADV_HUGEPAGE);
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < count; i++)
        values[i] = 1.0f + (float)(i & 255);
    return values;
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    size_t count = strtoull(argv[1], NULL, 10) / sizeof(float);
    float *restrict a = array(count), *restrict b = array(count), *restrict c = array(count);
    double fastest = 1e9;
    for (int call = atoi(argv[2]); call > 0; call--) {
        double begun = omp_get_wtime();
#pragma omp parallel for simd schedule(static)
        for (size_t i = 0; i < count; i++)
            a[i] = b[i] + 3.0f * c[i];
        double seconds = omp_get_wtime() - begun;
        fastest = seconds < fastest ? seconds : fastest;
    }
    printf("%.9f %g\n", fastest, a[count / 2]);
    return 0;
}
