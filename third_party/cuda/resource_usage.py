"""Reads what `ptxas -v` said and prints one line per kernel and architecture: registers, shared memory, stack, spills.

Fails if any kernel spills registers to memory: a kernel that does is slower than it looks, and nobody would notice.
"""
import re
import subprocess
import sys


def usages(log):
    """Dictionaries in the order of the log."""
    found = []
    for line in log.splitlines():
        if match := re.search(r"Compiling entry function '(\w+)' for 'sm_(\w+)'", line):
            found.append({"kernel": match[1], "sm": match[2], "registers": 0, "shared": 0, "stack": 0, "spills": 0})
        elif match := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            if found:
                found[-1]["stack"] = int(match[1])
                found[-1]["spills"] = int(match[2]) + int(match[3])
        elif match := re.search(r"Used (\d+) registers", line):
            found[-1]["registers"] = int(match[1])
            if shared := re.search(r"(\d+) bytes smem", line):
                found[-1]["shared"] = int(shared[1])
    return found


def readable(names):
    """C++ names without namespaces and arguments."""
    text = subprocess.run(["c++filt", "-p"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    return [re.sub(r"(\(anonymous namespace\)|\w+)::", "", name).removeprefix("void ") for name in text.splitlines()]


def main():
    log = sys.stdin.read()
    rows = usages(log)
    print("kernel\tsm\tregisters\tshared\tstack\tspills")
    for row, name in zip(rows, readable([row["kernel"] for row in rows])):
        print(name, *list(row.values())[1:], sep="\t")
        if row["spills"]:
            sys.exit(f"{name} spills {row['spills']} bytes of registers on sm_{row['sm']}")


if __name__ == "__main__":
    main()
