import made_up
import pytest


def timed(seconds, used, **axes):
    case = made_up.case("infer_step", "cpu", model="resnet18", batch=8, **axes)
    times = made_up.flat([seconds * each for each in made_up.SEVEN])
    return made_up.rounds_of(case, times, items=8 * axes.get("instances", 1), threads=used)


def of_threads(**seconds):
    return [each for name, took in seconds.items() for each in timed(took, int(name[1:]), threads=int(name[1:]))]


def of_instances(**seconds):
    return [each for name, took in seconds.items() for each in timed(took, 8 // int(name[1:]), instances=int(name[1:]))]


@pytest.mark.parametrize(
    ("measured", "headline", "qualifier"),
    [
        (of_threads(t1=8.0, t2=4.0, t4=2.0), "4 threads 4.00× the fewest; last step 2.00×", "infer resnet18 b8"),
        (of_threads(t1=8.0, t2=4.0, t4=4.0, t8=4.0), "2 of 8 threads are enough; last step 1.00×", "infer resnet18 b8"),
        (of_threads(t1=8.0, t2=9.0), "1 of 2 threads are enough; last step 0.889×", "infer resnet18 b8"),
        (of_instances(i1=1.0, i2=1.5, i4=4.0), "2 processes 1.33× one of all (1.29…1.37)", "infer resnet18 b8"),
        (of_instances(i1=1.0, i2=4.0), "one process of all cores; 2 0.500× (0.485…0.515)", "infer resnet18 b8"),
        (of_instances(i1=1.0, i2=2.0), "no gain shown with 2 processes", "infer resnet18 b8"),
    ],
)
def test_the_fewest_threads_that_are_enough_and_the_processes_that_do_most(asked, measured, headline, qualifier):
    answer = asked(measured)["cores"]
    assert (answer["headline"], answer["qualifier"]) == (headline, qualifier)


def test_rows_without_the_axis_or_of_one_number_alone_answer_nothing(asked):
    assert asked([*timed(1.0, 2), *of_threads(t4=2.0), *of_instances(i2=1.0)])["cores"]["kind"] == "missing"
