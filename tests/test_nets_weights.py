"""Weight files: what goes in comes out bit for bit, and whatever is not a net's weights is refused by name."""

import numpy as np
import pytest
from cases import NETS
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from refusals import refusal

import marginflow as mf
from marginflow import nets
from marginflow._core.errors import InputError
from marginflow.nets import TwoLayer
from marginflow.nets.weights import read, to_bytes

NET, D = TwoLayer(3), 2
THETA = {"W": np.arange(6.0).reshape(3, 2), "a": np.array([1.0, -2.0, 0.5])}


@pytest.mark.parametrize(("net", "d"), NETS.values(), ids=NETS.keys())
def test_every_net_survives(net, d, tmp_path):
    rng = np.random.default_rng(0)
    theta = {name: rng.standard_normal(shape) for name, shape in net.shapes(d).items()}
    nets.save_weights(tmp_path / "w.safetensors", theta)
    again = nets.load_weights(tmp_path / "w.safetensors", net, d)
    assert theta.keys() == again.keys()
    assert all(np.array_equal(theta[k], again[k]) and theta[k].dtype == again[k].dtype for k in theta)


@given(
    hnp.arrays(
        st.sampled_from([np.float64, np.float32, np.float16, np.int64, np.uint8, np.bool_, ">f8"]),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    )
)
def test_any_array_in_any_layout(array):
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "w.safetensors"
        for layout in (array, np.asfortranarray(array), array[..., ::-1] if array.ndim else array):
            path.write_bytes(to_bytes({"x": layout}, {"note": "ρ"}))
            arrays, metadata = read(path)
            assert metadata == {"note": "ρ"}
            assert arrays["x"].shape == layout.shape
            # Compared as bytes: NaNs and signed zeros count too.
            assert arrays["x"].tobytes() == layout.astype(layout.dtype.newbyteorder("=")).tobytes()


def test_jax_arrays_are_accepted(tmp_path):
    import jax.numpy as jnp

    nets.save_weights(tmp_path / "w", {"W": jnp.ones((3, 2)), "a": jnp.ones(3)})
    assert nets.load_weights(tmp_path / "w", NET, D)["W"].dtype == np.float32


@pytest.mark.torch
def test_torch_reads_and_writes_the_same_file(tmp_path):
    import torch
    from safetensors.torch import load_file, save_file

    nets.save_weights(tmp_path / "ours", THETA)
    assert torch.equal(load_file(tmp_path / "ours")["W"], torch.tensor(THETA["W"]))
    save_file({k: torch.tensor(v) for k, v in THETA.items()}, tmp_path / "theirs")
    assert np.array_equal(nets.load_weights(tmp_path / "theirs", NET, D)["a"], THETA["a"])


def without(name):
    return {k: v for k, v in THETA.items() if k != name}


REFUSED = {
    "missing tensor": (without("a"), "tensor 'a' is missing"),
    "transposed": ({**THETA, "W": THETA["W"].T}, "has shape (2, 3), the net needs (3, 2); store the transpose"),
    "wrong width": ({**THETA, "a": np.ones(4)}, "tensor 'a' has shape (4,), the net needs (3,)"),
    "extra tensor": ({**THETA, "b": np.ones(3)}, "tensor 'b' is no weight of two-layer"),
    "NaN": ({**THETA, "W": np.array([[0, 1], [2, np.nan], [4, 5.0]])}, "tensor 'W' is nan at [1, 1]"),
    "infinite": ({**THETA, "a": np.array([0, np.inf, 1])}, "tensor 'a' is inf at [1]"),
    "integers": ({**THETA, "a": np.array([1, 2, 3])}, "tensor 'a' holds int64"),
}


@pytest.mark.parametrize(("theta", "says"), REFUSED.values(), ids=REFUSED.keys())
def test_wrong_weights_are_refused(theta, says, tmp_path):
    path = tmp_path / "w.safetensors"
    nets.save_weights(path, theta)
    assert refusal(lambda: nets.load_weights(path, NET, D), says).startswith(f"{path}: ")


GIVEN = {
    **{name: row for name, row in REFUSED.items() if name != "integers"},
    "words": ({**THETA, "a": ["x", "y", "z"]}, "tensor 'a' is not an array of numbers"),
    "ragged": ({**THETA, "W": [[1.0, 2.0], [3.0]]}, "tensor 'W' is not an array of numbers"),
    "nothing": ({}, "tensor 'W' is missing (found: none)"),
}
ON = mf.Dataset(np.array([[1.0, 2.0], [-1.0, -3.0], [2.0, 1.0]]), [1, -1, 1])
TAKERS = {
    "flow": lambda theta: mf.train(NET, theta, ON, until="frozen"),
    "gd": lambda theta: mf.train(NET, theta, ON, method="gd", epochs=1),
    "kkt": lambda theta: mf.margins.kkt(NET, theta, ON),
    "verify": lambda theta: mf.verify(NET, theta, ON),
}


@pytest.mark.parametrize("take", TAKERS.values(), ids=TAKERS.keys())
@pytest.mark.parametrize(("theta", "says"), GIVEN.values(), ids=GIVEN.keys())
def test_wrong_weights_are_refused_wherever_they_are_given(theta, says, take):
    refusal(lambda: take(theta), says)


def test_weights_of_nothing_but_zeros_have_no_direction_to_judge():
    refusal(lambda: mf.verify(NET, {k: 0 * w for k, w in THETA.items()}, ON), "all zero")


def test_a_damaged_file_is_refused_wherever_it_is_cut(tmp_path):
    whole = to_bytes(THETA)
    path = tmp_path / "w.safetensors"
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(InputError, match=str(path)):
            nets.load_weights(path, NET, D)


@pytest.mark.parametrize("content", [b"PK\x03\x04 a zip file", b"\x80\x04\x95 a pickle", b"{}", b"\xff" * 100])
def test_other_files_are_refused(content, tmp_path):
    path = tmp_path / "w.safetensors"
    path.write_bytes(content)
    with pytest.raises(InputError, match="not a whole safetensors file"):
        nets.load_weights(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(InputError, match="no such file"):
            nets.load_weights(path)


def test_text_is_no_weight(tmp_path):
    with pytest.raises(InputError, match="tensor 'W' holds <U1"):
        nets.save_weights(tmp_path / "w", {"W": np.array(["x"])})
    assert not (tmp_path / "w").exists()
