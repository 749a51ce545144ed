/* Products of signs: rows of bits against columns of bits, by XOR and popcount. dlbench/kit/products.py builds this where it runs.

   A bit is 1 where a number is at least 0. Bits are packed into words of 64 along k, with zeros behind the last; of two vectors that
   differ in d bits the product is k - 2 d. Columns of b lie in panels of PANEL, word by word, so that one vector has the same word of
   neighbouring columns, and needs no sum across its lanes. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { WORD = 64, ROWS = 4, PANEL = 8 };
enum { CHUNK = 64 }; /* rows that meet a panel while it is in the first cache */
enum { FLUSH = 31 }; /* words whose counts fit into a byte, at most 8 a word */

#if defined(__x86_64__)
#define TARGET(features) __attribute__((target(features)))
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

/* ROWS x PANEL numbers of differing bits; rows of a are `words` apart, words of b are PANEL apart. */
typedef void count_tile(const uint64_t *a, const uint64_t *b, int64_t words, int32_t tile[ROWS][PANEL]);
/* The bits of whole words; `x` has 64 numbers for each. */
typedef void pack_words(const float *x, int64_t words, uint64_t *packed);

#define SCALAR(name, attribute) \
    attribute static void pack_##name(const float *x, int64_t words, uint64_t *packed) { \
        for (int64_t w = 0; w < words; w++) { \
            uint64_t word = 0; \
            for (int i = 0; i < WORD; i++) word |= (uint64_t)(x[w * WORD + i] >= 0) << i; \
            packed[w] = word; \
        } \
    } \
    attribute static void count_##name(const uint64_t *a, const uint64_t *b, int64_t words, int32_t tile[ROWS][PANEL]) { \
        for (int r = 0; r < ROWS; r++) { \
            int32_t sums[PANEL] = {0}; \
            for (int64_t w = 0; w < words; w++) \
                for (int c = 0; c < PANEL; c++) sums[c] += __builtin_popcountll(a[r * words + w] ^ b[w * PANEL + c]); \
            for (int c = 0; c < PANEL; c++) tile[r][c] = sums[c]; \
        } \
    }

SCALAR(plain, )

#if defined(__x86_64__)

SCALAR(popcnt, TARGET("popcnt"))

/* Vectors are those of gcc and clang, and what these have no operator for is an instruction by name: immintrin.h alone takes gcc 0.3 s,
   twice as long as all of this, and a run waits for it. */
#define VECTOR(bytes, alignment) __attribute__((vector_size(bytes), aligned(alignment), may_alias))
typedef float floats_512 VECTOR(64, 4);
typedef float floats_256 VECTOR(32, 4);
typedef uint64_t words_512 VECTOR(64, 8);
typedef uint64_t words_256 VECTOR(32, 8);
typedef int32_t ints_256 VECTOR(32, 4);
typedef uint8_t bytes_256 VECTOR(32, 8);

#define AVX512 TARGET("avx512f,avx512vpopcntdq")
#define AVX2 TARGET("avx2")

AVX512 static void pack_avx512(const float *x, int64_t words, uint64_t *packed) {
    const floats_512 zero = {0};
    for (int64_t w = 0; w < words; w++, x += WORD) {
        uint64_t word = 0;
        for (int i = 0; i < WORD; i += 16) {
            uint16_t bits;
            __asm__("vcmpgeps %2, %1, %0" : "=k"(bits) : "v"(*(const floats_512 *)(x + i)), "v"(zero));
            word |= (uint64_t)bits << i;
        }
        packed[w] = word;
    }
}

AVX512 static void count_avx512(const uint64_t *a, const uint64_t *b, int64_t words, int32_t tile[ROWS][PANEL]) {
    words_512 sums[ROWS] = {0};
    for (int64_t w = 0; w < words; w++)
        for (int r = 0; r < ROWS; r++) {
            words_512 counts;
            __asm__("vpopcntq %1, %0" : "=v"(counts) : "v"(*(const words_512 *)(b + w * PANEL) ^ a[r * words + w]));
            sums[r] += counts;
        }
    for (int r = 0; r < ROWS; r++) *(ints_256 *)tile[r] = __builtin_convertvector(sums[r], ints_256);
}

AVX2 static void pack_avx2(const float *x, int64_t words, uint64_t *packed) {
    const floats_256 zero = {0};
    for (int64_t w = 0; w < words; w++, x += WORD) {
        uint64_t word = 0;
        for (int i = 0; i < WORD; i += 8) {
            uint32_t bits;
            __asm__("vmovmskps %1, %0" : "=r"(bits) : "x"(*(const floats_256 *)(x + i) >= zero));
            word |= (uint64_t)bits << i;
        }
        packed[w] = word;
    }
}

/* Counts in half bytes come from a table of 16: W. Mula, N. Kurz, D. Lemire, arXiv 1611.07612. */
AVX2 static void count_avx2(const uint64_t *a, const uint64_t *b, int64_t words, int32_t tile[ROWS][PANEL]) {
    const bytes_256 table = {0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4, 0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4};
    const words_256 low = (words_256){0} + 0x0f0f0f0f0f0f0f0f, zero = {0};
    for (int half = 0; half < PANEL; half += 4) {
        words_256 sums[ROWS] = {0};
        for (int64_t begin = 0; begin < words; begin += FLUSH) {
            const int64_t end = begin + FLUSH < words ? begin + FLUSH : words;
            bytes_256 counts[ROWS] = {0};
            for (int64_t w = begin; w < end; w++)
                for (int r = 0; r < ROWS; r++) {
                    const words_256 differ = *(const words_256 *)(b + w * PANEL + half) ^ a[r * words + w];
                    bytes_256 lower, upper;
                    __asm__("vpshufb %2, %1, %0" : "=x"(lower) : "x"(table), "x"(differ & low));
                    __asm__("vpshufb %2, %1, %0" : "=x"(upper) : "x"(table), "x"(differ >> 4 & low));
                    counts[r] += lower + upper;
                }
            for (int r = 0; r < ROWS; r++) {
                words_256 eight; /* bytes, summed */
                __asm__("vpsadbw %2, %1, %0" : "=x"(eight) : "x"(counts[r]), "x"(zero));
                sums[r] += eight;
            }
        }
        for (int r = 0; r < ROWS; r++)
            for (int c = 0; c < 4; c++) tile[r][half + c] = (int32_t)sums[r][c];
    }
}

static int has_avx512(void) { return __builtin_cpu_supports("avx512vpopcntdq"); }
static int has_avx2(void) { return __builtin_cpu_supports("avx2"); }
static int has_popcnt(void) { return __builtin_cpu_supports("popcnt"); }

#elif defined(__aarch64__)

static void pack_neon(const float *x, int64_t words, uint64_t *packed) {
    static const uint32_t bits[4] = {1, 2, 4, 8};
    const uint32x4_t weights = vld1q_u32(bits);
    for (int64_t w = 0; w < words; w++, x += WORD) {
        uint64_t word = 0;
        for (int i = 0; i < 16; i++)
            word |= (uint64_t)vaddvq_u32(vandq_u32(vcgeq_f32(vld1q_f32(x + 4 * i), vdupq_n_f32(0)), weights)) << (4 * i);
        packed[w] = word;
    }
}

static void count_neon(const uint64_t *a, const uint64_t *b, int64_t words, int32_t tile[ROWS][PANEL]) {
    for (int pair = 0; pair < PANEL / 2; pair++) {
        uint64x2_t sums[ROWS] = {vdupq_n_u64(0), vdupq_n_u64(0), vdupq_n_u64(0), vdupq_n_u64(0)};
        for (int64_t begin = 0; begin < words; begin += FLUSH) {
            const int64_t end = begin + FLUSH < words ? begin + FLUSH : words;
            uint8x16_t counts[ROWS] = {vdupq_n_u8(0), vdupq_n_u8(0), vdupq_n_u8(0), vdupq_n_u8(0)};
            for (int64_t w = begin; w < end; w++) {
                const uint64x2_t columns = vld1q_u64(b + w * PANEL + 2 * pair);
                for (int r = 0; r < ROWS; r++) {
                    const uint64x2_t differ = veorq_u64(columns, vdupq_n_u64(a[r * words + w]));
                    counts[r] = vaddq_u8(counts[r], vcntq_u8(vreinterpretq_u8_u64(differ)));
                }
            }
            for (int r = 0; r < ROWS; r++) sums[r] = vaddq_u64(sums[r], vpaddlq_u32(vpaddlq_u16(vpaddlq_u8(counts[r]))));
        }
        for (int r = 0; r < ROWS; r++) {
            tile[r][2 * pair] = (int32_t)vgetq_lane_u64(sums[r], 0);
            tile[r][2 * pair + 1] = (int32_t)vgetq_lane_u64(sums[r], 1);
        }
    }
}

#endif

static int always(void) { return 1; }

/* The fastest first. */
static const struct {
    const char *name;
    int (*is_there)(void);
    pack_words *pack;
    count_tile *count;
} kernels[] = {
#if defined(__x86_64__)
    {"AVX512 VPOPCNTDQ", has_avx512, pack_avx512, count_avx512},
    {"AVX2", has_avx2, pack_avx2, count_avx2},
    {"scalar", has_popcnt, pack_popcnt, count_popcnt},
#elif defined(__aarch64__)
    {"NEON", always, pack_neon, count_neon},
#endif
    {"scalar", always, pack_plain, count_plain},
};

/* Rows that a kernel takes at once, and columns whose words lie side by side. */
const int64_t binary_rows = ROWS, binary_panel = PANEL;

/* The name of a kernel, "" where this processor lacks its instructions, and NULL behind the last. */
const char *binary_kernel(int64_t kernel) {
    if (kernel >= (int64_t)(sizeof kernels / sizeof *kernels)) return NULL;
    return kernels[kernel].is_there() ? kernels[kernel].name : "";
}

/* Pack rows of k numbers, one behind the other, into rows of ceil(k / 64) words. */
void binary_pack(int64_t kernel, const float *x, int64_t rows, int64_t k, uint64_t *packed) {
    const int64_t whole = k / WORD, words = (k + WORD - 1) / WORD;
    for (int64_t row = 0; row < rows; row++, x += k, packed += words) {
        kernels[kernel].pack(x, whole, packed);
        uint64_t last = 0;
        for (int64_t i = whole * WORD; i < k; i++) last |= (uint64_t)(x[i] >= 0) << (i % WORD);
        if (words > whole) packed[whole] = last;
    }
}

/* The products of `rows` packed rows, for which there is memory up to a multiple of ROWS, and n columns in panels. */
void binary_multiply(int64_t kernel, const uint64_t *a, const uint64_t *b, int64_t rows, int64_t n, int64_t k, int32_t *product) {
    const int64_t words = (k + WORD - 1) / WORD;
    for (int64_t chunk = 0; chunk < rows; chunk += CHUNK)
        for (int64_t column = 0; column < n; column += PANEL)
            for (int64_t row = chunk; row < rows && row < chunk + CHUNK; row += ROWS) {
                int32_t tile[ROWS][PANEL];
                kernels[kernel].count(a + row * words, b + column * words, words, tile);
                for (int r = 0; r < ROWS && row + r < rows; r++) {
                    int32_t line[PANEL];
                    for (int c = 0; c < PANEL; c++) line[c] = (int32_t)k - 2 * tile[r][c];
                    int32_t *to = product + (row + r) * n + column;
                    if (n - column >= PANEL) memcpy(to, line, sizeof line);
                    else memcpy(to, line, (size_t)(n - column) * sizeof *line);
                }
            }
}
