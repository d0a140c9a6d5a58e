"""Runs on disk. A saved run is a folder that other programs can read and that loading executes nothing of:

    run.json                     net, options, outcome, provenance, and the list of the other files with their hashes
    weights-<hash>.safetensors   θ, under the net's own names
    history-<hash>.nc            netCDF: everything recorded, over the dimension `record` with coordinate log_time
    arrays-<hash>.safetensors    initial weights, events, limit, extras, and the data when they are small

run.json is written last and replaced in one step, and the other files are named by their content. So a folder holds
the old run or the new one at every moment, and equal runs have equal file names.

A checkpoint is one file: arrays and values from which an interrupted computation continues to the same bits.
"""

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from marginflow._core import files
from marginflow._core.errors import InputError
from marginflow._core.packing import Damaged, pack, unpack
from marginflow._core.version import __version__
from marginflow.data import Dataset
from marginflow.data import load as load_data
from marginflow.nets.net import Net
from marginflow.nets.spec import NETS
from marginflow.nets.spec import net as net_from_spec
from marginflow.nets.weights import check_shapes, read, to_bytes
from marginflow.runs import Run

FORMAT, VERSION = "marginflow-run", 1
CHECKPOINT, CHECKPOINT_VERSION = "marginflow-checkpoint", "1"
MANIFEST = "run.json"
ENSEMBLE = "ensemble.nc"  # what is kept of seeds that were trained together
# Data up to this size travel with the run. Larger ones are stored as the DATA argument that makes them, if it does.
EMBED_BYTES = 32 * 2**20
_PAYLOAD = re.compile(r"(weights|history|arrays)-[0-9a-f]{16}\.(safetensors|nc)")
_EXACT_INTEGERS = 2**53


def save(run: Run, path: str | os.PathLike) -> Path:
    """Write `run` as the folder `path`, new or holding an earlier run, and return it."""
    folder = Path(path)
    _refuse_folder(folder)
    if NETS.get(run.net.kind) is not type(run.net):
        raise InputError(f"{folder}: a {type(run.net).__name__} cannot be saved; nets that can: {', '.join(NETS)}")
    check_shapes(run.theta, run.net, run.data.d, f"{folder}: run.theta")
    data, embedded = _pack_data(run.data)
    view, rest = _split_history(run)
    plain = {f.name: getattr(run, f.name) for f in dataclasses.fields(run)
             if f.name not in ("net", "data", "theta", "history")}
    packed, arrays = pack({**plain, "history": rest}, "run")
    contents = {"weights": ("safetensors", to_bytes(run.theta)),
                "history": ("nc", _netcdf(view, run)),
                "arrays": ("safetensors", to_bytes({**arrays, **embedded}))}

    files.folder(folder)
    listed = {}
    for role, (suffix, content) in contents.items():
        digest = hashlib.sha256(content).hexdigest()
        name = f"{role}-{digest[:16]}.{suffix}"
        files.write(folder / name, content)
        listed[role] = {"name": name, "sha256": digest, "bytes": len(content)}
    manifest = {"format": FORMAT, "version": VERSION, "marginflow": __version__, "net": run.net.spec(), "data": data,
                "recorded": list(run.history), "files": listed, "run": packed}
    files.write(folder / MANIFEST, json.dumps(manifest, indent=1, allow_nan=False, ensure_ascii=False).encode())
    _sweep(folder, keep={entry["name"] for entry in listed.values()})
    return folder


def prepare(path: str | os.PathLike) -> Path:
    """The folder `path` as a place for a run, made if need be; asked before a long training."""
    folder = Path(path)
    _refuse_folder(folder)
    return files.folder(folder)


def load(path: str | os.PathLike) -> Run:
    """The run saved at `path`, every file of it checked against its hash."""
    folder, manifest = _manifest(path)
    where = folder / MANIFEST
    try:
        paths = {role: _payload(folder, manifest, role) for role in ("weights", "history", "arrays")}
        theta, arrays = read(paths["weights"])[0], read(paths["arrays"])[0]
        net = _net(manifest["net"], where)
        fields = unpack(manifest["run"], arrays)
        data = _unpack_data(manifest["data"], arrays, where)
        recorded = {**_read_history(paths["history"]), **fields.pop("history")}
        history = {name: recorded[name] for name in manifest["recorded"]}
        check_shapes(theta, net, data.d, str(paths["weights"]))
        return Run(net=net, data=data, theta=theta, history=history, **fields)
    except (Damaged, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{where}: not a whole run ({type(error).__name__}: {_one_line(error)}); "
                         "copy the folder again or repeat the run") from error


def history(path: str | os.PathLike) -> Any:
    """The recorded history of the run at `path` as an xarray.Dataset, without loading the rest."""
    import xarray

    folder, manifest = _manifest(path)
    return xarray.load_dataset(_payload(folder, manifest, "history"), engine="scipy")


def is_run(path: str | os.PathLike) -> bool:
    """Whether a finished save is at `path`."""
    path = Path(path)
    return (path if path.name == MANIFEST else path / MANIFEST).is_file()


def several_seeds(path: str | os.PathLike) -> str | None:
    """What to do with the folder that a training of several seeds wrote; None for any other."""
    path = Path(path)
    runs = sorted(manifest.parent.name for manifest in path.glob(f"*/{MANIFEST}"))
    if runs:
        return f"holds {len(runs)} runs and is none itself; give one, such as {path / runs[0]}"
    if (path / ENSEMBLE).is_file():
        return f"holds the numbers of several seeds ({ENSEMBLE}) and no run; train one seed with --out to have one"
    return None


def save_checkpoint(path: str | os.PathLike, arrays: Mapping[str, Any], meta: Mapping[str, Any]) -> None:
    """`arrays` and `meta` as the one file `path`, replacing an earlier checkpoint in one step."""
    packed, inner = pack(dict(meta), "meta")
    text = json.dumps(packed, allow_nan=False, ensure_ascii=False)
    named = {**{f"arrays/{k}": np.asarray(v, order="C") for k, v in arrays.items()},
             **{f"inner/{k}": v for k, v in inner.items()}}
    header = {"format": CHECKPOINT, "version": CHECKPOINT_VERSION, "meta": text, "sha256": _digest(named, text)}
    files.write(path, to_bytes(named, header))


def load_checkpoint(path: str | os.PathLike) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """(arrays, meta) as they were given to `save_checkpoint`, bit for bit."""
    named, header = read(path)
    if header.get("format") != CHECKPOINT or header.get("version") != CHECKPOINT_VERSION:
        raise InputError(f"{path}: not a checkpoint of this version; remove it to start again")
    if header.get("sha256") != _digest(named, header.get("meta", "")):
        raise InputError(f"{path}: the checkpoint is damaged; remove it to start again")
    inner = {k.removeprefix("inner/"): v for k, v in named.items() if k.startswith("inner/")}
    try:
        meta = unpack(json.loads(header["meta"]), inner)
    except (Damaged, json.JSONDecodeError) as error:
        raise InputError(f"{path}: the checkpoint cannot be read ({_one_line(error)}); "
                         "remove it to start again") from error
    return {k.removeprefix("arrays/"): v for k, v in named.items() if k.startswith("arrays/")}, meta


@dataclasses.dataclass(frozen=True)
class CheckpointFolder:
    """Named checkpoints as files of one folder, which may be the folder of the run they lead to."""

    folder: Path

    def path(self, name: str) -> Path:
        if not re.fullmatch(r"[\w.-]+", name):
            raise InputError(f"checkpoint name '{name}'; use letters, digits, '-', '_' and '.'")
        return Path(self.folder) / f"checkpoint-{name}.safetensors"

    def save(self, name: str, arrays: Mapping[str, Any], meta: Mapping[str, Any]) -> None:
        save_checkpoint(self.path(name), arrays, meta)

    def load(self, name: str) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
        """What was saved under `name`, or None if nothing was."""
        path = self.path(name)
        return load_checkpoint(path) if path.exists() else None


def _digest(arrays: Mapping[str, np.ndarray], text: str) -> str:
    h = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        w = arrays[name]
        h.update(f"{name}{w.dtype.str}{w.shape}".encode())
        h.update(w.tobytes())
    return h.hexdigest()


def _refuse_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: a file is in the way; give the name of a folder")
    if folder.is_dir() and not is_run(folder):
        foreign = [p.name for p in folder.iterdir() if not _PAYLOAD.fullmatch(p.name) and not p.name.endswith(".part")
                   and not p.name.startswith("checkpoint")]  # a run that was interrupted before it was ever saved
        if foreign:
            raise InputError(f"{folder}: holds '{sorted(foreign)[0]}' and no run; give a new folder or one with a run")


def _sweep(folder: Path, keep: set[str]) -> None:
    """Remove what earlier saves, finished or killed, left behind."""
    for entry in folder.iterdir():
        stale = _PAYLOAD.fullmatch(entry.name) and entry.name not in keep
        if stale or (entry.name.startswith(".") and entry.name.endswith(".part")):
            with suppress(OSError):
                entry.unlink()


def _manifest(path: str | os.PathLike) -> tuple[Path, dict[str, Any]]:
    path = Path(path)
    folder = path.parent if path.name == MANIFEST else path
    where = folder / MANIFEST
    if not folder.is_dir():
        raise InputError(f"{path}: no such run; give the folder that --out named")
    if not where.is_file():
        missing = f"no {MANIFEST} in it, so no run was finished here; train again or resume"
        raise InputError(f"{folder}: {several_seeds(folder) or missing}")
    try:
        manifest = json.loads(where.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"{where}: cannot be read ({_one_line(error)}); save the run again") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise InputError(f"{where}: not a saved run of marginflow; give the folder that --out named")
    if manifest.get("version") != VERSION:
        raise InputError(f"{where}: saved by marginflow {manifest.get('marginflow')} in format "
                         f"{manifest.get('version')}, this is format {VERSION}; use that version")
    return folder, manifest


def _net(spec: Any, where: Path) -> Net:
    try:
        return net_from_spec(spec)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _payload(folder: Path, manifest: Mapping[str, Any], role: str) -> Path:
    entry = manifest["files"][role]
    if not _PAYLOAD.fullmatch(str(entry["name"])):
        raise Damaged(f"'{entry['name']}' is no file of a run")
    path = folder / entry["name"]
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); copy the whole folder again") from None
    if len(content) != entry["bytes"] or hashlib.sha256(content).hexdigest() != entry["sha256"]:
        raise InputError(f"{path}: damaged ({len(content)} of {entry['bytes']} bytes, or other content); "
                         "copy the folder again or repeat the run")
    return path


def _pack_data(data: Dataset) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    provenance, arrays = pack(dict(data.provenance), "data.provenance")
    packed = {"name": data.name, "sha256": data.sha256, "classes": list(data.classes), "provenance": provenance}
    if data.X.nbytes > EMBED_BYTES and (source := _source(data)) is not None:
        return {**packed, "source": source}, arrays
    return packed, {**arrays, "data.X": np.asarray(data.X), "data.y": data.y.astype(np.int8)}


def _source(data: Dataset) -> dict[str, str] | None:
    """The DATA argument that gives exactly these data again, found by trying it; None if there is none."""
    source = {"spec": str(data.provenance.get("file", data.name)), "label": str(data.provenance.get("label", "y"))}
    try:
        again = load_data(**source)
    except InputError:
        return None
    return source if again.sha256 == data.sha256 else None


def _unpack_data(packed: Mapping[str, Any], arrays: Mapping[str, np.ndarray], where: Path) -> Dataset:
    provenance = unpack(packed["provenance"], arrays)
    source = packed.get("source")
    if source is None:
        X, y = arrays["data.X"], arrays["data.y"].astype(np.float64)
    else:
        try:
            again = load_data(source["spec"], source["label"])
        except InputError as error:
            raise InputError(f"{where}: its data, '{source['spec']}', are not there ({error}); put them back") from None
        X, y = again.X, again.y
    data = Dataset(X, y, packed["name"], provenance, tuple(packed["classes"]))
    if data.sha256 != packed["sha256"]:
        what = "embedded data have" if source is None else f"data '{source['spec']}' have"
        raise InputError(f"{where}: the {what} changed since the run (sha256 {data.sha256[:16]} instead of "
                         f"{packed['sha256'][:16]}); put the original data back or repeat the run")
    return data


def _split_history(run: Run) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """(what netCDF holds over the dimension `record`, everything else)."""
    length = len(np.atleast_1d(run.history["log_time"])) if "log_time" in run.history else None
    view, rest = {}, {}
    for name, values in run.history.items():
        values = np.asarray(values)
        fits = values.ndim > 0 and len(values) == length and 0 not in values.shape[1:]
        if fits and name.isidentifier() and _stored(values) is not None:
            view[name] = values
        else:
            rest[name] = values
    return view, rest


def _stored(values: np.ndarray) -> np.ndarray | None:
    """`values` in a type of netCDF-3 that keeps every one of them, or None."""
    if values.dtype in (np.float64, np.float32, np.int32, np.int16, np.int8):
        return values.astype(values.dtype.newbyteorder("="), copy=False)
    if values.dtype == bool:
        return values.astype(np.int8)
    if values.dtype == np.float16:
        return values.astype(np.float32)
    if values.dtype.kind in "iu":
        top = max((abs(int(v)) for v in (values.min(), values.max())), default=0) if values.size else 0
        return values.astype(np.int32) if top < 2**31 else values.astype(np.float64) if top <= _EXACT_INTEGERS else None
    return None


def _netcdf(view: Mapping[str, np.ndarray], run: Run) -> bytes:
    """netCDF-3: read by every netCDF library, and the same bytes for the same numbers."""
    import xarray

    variables = {}
    for name, values in view.items():
        dims = ("record", *(f"{name}_{k}" for k in range(1, values.ndim)))
        variables[name] = (dims, _stored(values), {"numpy_dtype": values.dtype.str})
    coordinates = {"log_time": variables.pop("log_time")} if "log_time" in variables else {}
    attributes = {"title": "marginflow run", "net": str(run.net), "method": run.method, "loss": run.loss,
                  "data": run.data.name, "data_sha256": run.data.sha256}
    dataset = xarray.Dataset(variables, coordinates, attributes)
    # An unlimited dimension may have length 0 in netCDF-3; a fixed one may not.
    unlimited = ["record"] if "record" in dataset.dims else []
    return bytes(dataset.to_netcdf(engine="scipy", format="NETCDF3_64BIT", unlimited_dims=unlimited))


def _read_history(path: Path) -> dict[str, np.ndarray]:
    import xarray

    dataset = xarray.load_dataset(path, engine="scipy")
    return {str(name): variable.values.astype(np.dtype(variable.attrs["numpy_dtype"]))
            for name, variable in dataset.variables.items()}


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
