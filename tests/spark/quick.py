"""Settings with which Spark starts quickly, for data that is small."""

import os

# Compiling queries and expressions, and planning twice, would take most of the time.
SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}

JAVA = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Variables for Java: programs that run for some seconds are not worth optimising."""


def quick_words() -> list[str]:
    """Options of `dzflow trace`."""
    return [f"--setting={key}={value}" for key, value in SETTINGS.items()]


def quick_environment() -> dict[str, str]:
    """The environment of a command that starts Spark."""
    return {**os.environ, **JAVA}
