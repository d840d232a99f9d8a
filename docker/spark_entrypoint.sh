#!/bin/sh
# What the Spark operator starts in the image: `driver …` for the driver's pod. Everything else is a
# command of its own.
set -eu
if [ "${1:-}" = driver ]; then
  shift
  exec spark-submit --deploy-mode client \
    --conf "spark.driver.bindAddress=${SPARK_DRIVER_BIND_ADDRESS:-0.0.0.0}" "$@"
fi
exec "$@"
