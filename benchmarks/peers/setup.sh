#!/bin/sh
# Make the environment of the peers that need a JAX of 2024, and print the path of its interpreter.
#
#     benchmarks/peers/setup.sh [folder]
#
# jaxlib 0.4.30 exists for Python 3.9 to 3.12; PEER_PYTHON names one that is not found by itself.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/pymc_geodesic/peers}
stamp=$folder/.installed

if [ ! -f "$stamp" ] || [ "$here/requirements.txt" -nt "$stamp" ]; then
  for python in ${PEER_PYTHON:-python3.12 python3.11 python3.10 python3.9}; do
    "$python" -c "import venv" >/dev/null 2>&1 && break
    python=
  done
  if [ -z "$python" ]; then
    echo "The peers need Python 3.9 to 3.12: set PEER_PYTHON to one" >&2
    exit 1
  fi
  rm -rf "$folder"
  "$python" -m venv "$folder" >&2
  "$folder/bin/python" -m pip install --quiet --requirement "$here/requirements.txt" >&2
  touch "$stamp"
fi
echo "$folder/bin/python"
