#!/usr/bin/env bash
# A kernel that spills is refused by name; one that does not is listed.
set -euo pipefail
script=$1
log() {  # spilled bytes
  cat <<EOF
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_ZN5stria4cuda4SealEPf' for 'sm_90'
ptxas info    : Function properties for _ZN5stria4cuda4SealEPf
    16 bytes stack frame, $1 bytes spill stores, $1 bytes spill loads
ptxas info    : Used 72 registers, used 1 barriers, 4096 bytes smem, 400 bytes cmem[0]
EOF
}
[ "$(log 0 | /usr/bin/python3 "$script" | tail -n 1)" = $'Seal\t90\t72\t4096\t16\t0' ]
if message=$(log 8 | /usr/bin/python3 "$script" 2>&1 >/dev/null); then echo "a spill was accepted"; exit 1; fi
[ "$message" = "Seal spills 16 bytes of registers on sm_90" ]
