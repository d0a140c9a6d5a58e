"""Versions, devices, precision: what a bug report needs."""

import dataclasses

from marginflow._core.provenance import versions
from marginflow._core.record import Record, Table


@dataclasses.dataclass(frozen=True)
class Info(Record):
    versions: dict[str, str]
    devices: tuple[str, ...]
    cpu_count: int
    precision: str

    def table(self) -> Table:
        rows = [
            *self.versions.items(),
            ("devices", ", ".join(self.devices)),
            ("cpus", str(self.cpu_count)),
            ("precision", self.precision),
        ]
        return Table("marginflow", ("what", "value"), tuple(rows))


def info() -> Info:
    import os

    import jax

    devices = tuple(f"{d.platform}:{d.id} {d.device_kind}" for d in jax.devices())
    return Info(
        versions(),
        devices,
        os.cpu_count() or 1,
        "float64 inside the library; the caller's JAX settings are untouched",
    )
