"""Made-up /proc and /sys trees."""

from pathlib import Path


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def two_sockets(root: Path) -> Path:
    """2 sockets × 2 cores × 2 threads; Linux numbers the second threads after all first ones. An L3 a socket, one memory-only node."""
    files = {
        "sys/devices/system/cpu/online": "0-7",
        "proc/meminfo": "MemTotal:       16777216 kB\nMemFree: 1 kB\nMemAvailable:    8388608 kB",
    }
    blocks = []
    for cpu in range(8):
        core, socket = cpu % 4, cpu % 4 // 2
        folder = f"sys/devices/system/cpu/cpu{cpu}"
        siblings, package = f"{core},{core + 4}", "0-1,4-5" if socket == 0 else "2-3,6-7"
        files |= {
            f"{folder}/topology/physical_package_id": str(socket),
            f"{folder}/topology/core_cpus_list": siblings,
            f"{folder}/cpufreq/scaling_governor": "powersave" if cpu == 7 else "performance",
        }
        caches = (
            ("1", "Data", "48K", siblings),
            ("1", "Instruction", "32K", siblings),
            ("2", "Unified", "2048K", siblings),
            ("3", "Unified", "32768K", package),
        )
        for index, values in enumerate(caches):
            names = ("level", "type", "size", "shared_cpu_list")
            files |= {f"{folder}/cache/index{index}/{name}": value for name, value in zip(names, values, strict=True)}
        blocks.append(
            f"processor\t: {cpu}\nmodel name\t: Made-up Processor 9000\ncpu MHz\t\t: {2000 + cpu}.000\nphysical id\t: {socket}\n"
            f"core id\t\t: {core % 2}\nflags\t\t: fpu avx2"
        )
    files["proc/cpuinfo"] = "\n\n".join(blocks)
    files |= {f"sys/devices/system/node/node{n}/cpulist": cpus for n, cpus in enumerate(("0-1,4-5", "2-3,6-7", ""))}
    files["sys/devices/system/cpu/intel_pstate/no_turbo"] = "0"
    return write(root, files)
