#!/bin/sh
# Unit, property and conformance tests on every supported Python that is
# installed, with the SQLAlchemy that is locked and with the oldest supported.
# Each combination has an environment of its own under .matrix/, kept between
# runs. Arguments go to pytest. UV names uv, JOBS the number of processes, SKIP
# what has been tested elsewhere ("3.11-current").
set -eu

cd "$(dirname "$0")/.."
UV=${UV:-.venv/bin/uv}
JOBS=${JOBS:-logical}
TIERS="tests/unit tests/property tests/conformance"

# A version manager's python3.X may be on PATH without running; then the manager
# itself may know where one is.
find_python() {
    if "python$1" -c '' 2>/dev/null; then
        "python$1" -c 'import sys; print(sys.executable)'
        return
    fi
    command -v pyenv >/dev/null 2>&1 || return 0
    newest=$(pyenv versions --bare 2>/dev/null | grep "^$1\.[0-9]*$" | sort -t. -k3 -n | tail -n 1)
    [ -z "$newest" ] || echo "$(pyenv prefix "$newest")/bin/python"
}

prepare() { # environment, interpreter, "current" or "lowest"
    marker=$1/.installed
    wanted=$(cat requirements-dev.lock requirements-lowest.lock pyproject.toml | cksum)
    [ "$(cat "$marker" 2>/dev/null)" != "$wanted" ] || return 0
    "$UV" venv --quiet --clear --no-python-downloads --python "$2" "$1"
    "$UV" pip install --quiet --python "$1" --require-hashes -r requirements-dev.lock
    [ "$3" = current ] || "$UV" pip install --quiet --python "$1" --require-hashes --no-deps \
        -r requirements-lowest.lock
    "$UV" pip install --quiet --python "$1" --no-deps --no-build-isolation --editable .
    echo "$wanted" >"$marker"
}

run() { # Python, series, arguments for pytest
    python=$(find_python "$1")
    series=$2
    if [ -z "$python" ]; then
        echo "== Python $1: not installed, skipped"
        return 0
    fi
    case " ${SKIP:-} " in *" $1-$series "*)
        echo "== Python $1 with the $series SQLAlchemy: tested elsewhere, skipped"
        return 0
        ;;
    esac
    environment=.matrix/$1-$series
    prepare "$environment" "$python" "$series"
    shift 2
    "$environment/bin/python" -c 'import platform, sqlalchemy; print("== Python",
        platform.python_version(), "with SQLAlchemy", sqlalchemy.__version__, flush=True)'
    # shellcheck disable=SC2086  # the tiers are several words
    "$environment/bin/python" -m pytest -n "$JOBS" --dist worksteal -q -p no:cacheprovider \
        "$@" $TIERS
}

mkdir -p .matrix
run 3.11 lowest "$@"
run 3.11 current "$@"
run 3.12 current "$@"
run 3.13 current "$@"
