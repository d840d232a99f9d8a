"""The section on traces: where they are written."""

from pydantic import Field, SecretStr, field_validator

from api.start.settings.sections.base import Section


class TraceSettings(Section):
    """Traces of requests and of sampled events; see [traces](traces.md)."""

    to: SecretStr | None = Field(
        default=None,
        description="address of a folder: file:///…, s3://…, gs://…, abfs://…, hdfs://…; "
        "default: `traces/` in the data folder",
    )

    @field_validator("to")
    @classmethod
    def _address(cls, to: SecretStr | None) -> SecretStr | None:
        if to is not None and "://" not in to.get_secret_value():
            raise ValueError("this is no address; write file:///… for a folder of this machine")
        return to
