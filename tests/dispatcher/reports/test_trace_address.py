"""Addresses of storage: refused before anything is started, and shown without secrets."""

import pytest

from dispatcher.reports.trace_address import (
    BadTraceAddress,
    check_address,
    shown_address,
    spark_address,
    without_secrets,
)


@pytest.mark.parametrize(
    "address",
    [
        "file:///var/lib/traces",
        "s3://bucket/folder",
        "s3://KEY:geheim@bucket/folder?endpoint_override=minio:9000&scheme=http",
        "s3://bucket/folder?region=eu-central-1",
        "gs://bucket/folder",
        "abfs://container:geheim@account.dfs.core.windows.net/folder",
        "hdfs://namenode:8020/dzflow/traces",
    ],
)
def test_addresses_that_pyarrow_knows_are_accepted_without_reaching_out(address: str) -> None:
    check_address(address)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("traces", "this is no address such as file:///"),
        ("/var/lib/traces", "this is no address such as file:///"),
        ("nosuch://u:geheim@bucket/folder", "pyarrow has no file system for nosuch://…; it has"),
        ("s3a://u:geheim@bucket/folder", "for s3a://…; write s3://… here; it has"),
        ("s3://", "names no folder"),
        ("file:///", "names no folder"),
        ("hdfs:///folder", "does not understand hdfs:///folder: it names no host"),
        ("hdfs://namenode", "names no folder"),
        ("file://other-machine/folder", "pyarrow does not understand file://other-machine/folder"),
        ("s3://u:geheim@bucket/a b", "pyarrow does not understand s3://bucket/a b"),
        ("s3://bucket/folder?secret_key=geheim", "Unexpected query parameter in S3 URI"),
        ("s3://u:ge/heim@bucket/folder", "pyarrow does not understand s3://…"),
        ("s3://[u:geheim@bucket/folder", "pyarrow does not understand s3://bucket/folder"),
    ],
)
def test_other_addresses_are_refused_with_a_reason_and_without_secrets(
    address: str, said: str
) -> None:
    with pytest.raises(BadTraceAddress) as refused:
        check_address(address)
    assert said in str(refused.value)
    for secret in ("geheim", "heim", "u:ge"):
        assert secret not in str(refused.value)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("s3://bucket/folder", "s3://bucket/folder"),
        ("S3://KEY:geheim@bucket/folder?region=x", "s3://bucket/folder"),
        ("s3://KEY:ge%2Fheim@bucket/folder#x", "s3://bucket/folder"),
        ("s3://KEY:ge@heim@bucket/folder", "s3://bucket/folder"),
        ("s3://KEY:ge/heim@bucket/folder", "s3://…"),
        ("s3://KEY:ge?heim@bucket/folder", "s3://…"),
        ("s3://bucket/folder?key=ge@heim", "s3://…"),
        ("geheim", "…"),
    ],
)
def test_an_address_is_shown_without_secrets(address: str, shown: str) -> None:
    assert shown_address(address) == shown


def test_a_text_that_repeats_secrets_is_not_shown() -> None:
    address = "s3://KEY:ge%2Fheim@bucket/folder"
    assert without_secrets(f"cannot use {address}", address) == "cannot use s3://bucket/folder"
    assert without_secrets("nobody\n answers", address) == "nobody answers"
    for text in ("with ge%2Fheim", "with ge/heim", "KEY is unknown"):
        assert without_secrets(text, address).startswith("the error repeats parts of the address")


@pytest.mark.parametrize(
    ("address", "spark"),
    [
        ("file:///var/some%20where", "file:///var/some where"),
        ("s3://KEY:geheim@bucket/folder?region=x", "s3a://bucket/folder"),
        ("gcs://bucket/folder", "gs://bucket/folder"),
        ("hdfs://namenode:8020/folder", "hdfs://namenode:8020/folder"),
        (
            "abfss://container:geheim@account.dfs.core.windows.net/folder",
            "abfss://container@account.dfs.core.windows.net/folder",
        ),
    ],
)
def test_spark_has_its_own_names_and_gets_no_secrets(address: str, spark: str) -> None:
    assert spark_address(address) == spark
