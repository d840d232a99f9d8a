#!/bin/sh
# The steps that make the images of dzflow; docker/Dockerfile runs them, and a test does so without
# Docker. They are run in the folder with the sources.
#
#   build.sh python FOLDER       a Python environment with dzflow, pinned by hashes
#   build.sh spark FOLDER        adds PySpark to it
#   build.sh compile FOLDER      compiles its modules: they cannot be cached in a read-only image
#   build.sh etcd FOLDER         builds etcd with Go
set -eu

python=${PYTHON:-python3}
tools=${TMPDIR:-/tmp}/dzflow-build

# uv installs in seconds what takes pip minutes.
uv() {
  if [ ! -x "$tools/bin/uv" ]; then
    "$python" -m venv "$tools"
    "$tools/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes \
      -r requirements/lock.txt
  fi
  "$tools/bin/uv" --quiet --no-progress "$@"
}

step=$1
folder=$2
case $step in
python)
  uv venv --python "$python" "$folder"
  VIRTUAL_ENV=$folder uv pip install --require-hashes -r requirements/run.txt
  VIRTUAL_ENV=$folder uv pip install --require-hashes -r requirements/otel.txt
  VIRTUAL_ENV=$folder uv pip install --no-deps --no-build-isolation ./dzflow .
  ;;
spark)
  VIRTUAL_ENV=$folder uv pip install --require-hashes --no-build-isolation -r requirements/spark.txt
  install -m 755 docker/spark_trace.py "$folder/bin/trace.py"
  ;;
compile)
  "$folder/bin/python" -m compileall -q -j 0 "$folder/lib" || true  # some packages ship templates
  ;;
etcd)
  mkdir -p "$folder"
  cd configurators/store/server/etcdbuild
  CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$folder/etcd" .
  ;;
*)
  echo "build.sh: $step is none of python, spark, compile, etcd" >&2
  exit 2
  ;;
esac
