"""Pickles that try to call something, to fill the memory, or that are not what they should be."""

from __future__ import annotations

import pickle
import struct

import numpy as np
import pytest

from reweigh.lab.data.source import unpickle

SENTINEL = "executed"
TOUCH = f"open({SENTINEL!r}, 'w').close()".encode()
GOOD = pickle.dumps({"labels": [1, 2, 3], "data": np.arange(12, dtype=np.uint8).reshape(3, 4)}, protocol=2)


def text(raw: bytes) -> bytes:
    return b"X" + struct.pack("<I", len(raw)) + raw


def short(raw: bytes) -> bytes:
    return b"\x8c" + bytes([len(raw)]) + raw


def call(module: bytes, name: bytes, argument: bytes = TOUCH) -> bytes:
    """GLOBAL and REDUCE, the usual way."""
    return b"c" + module + b"\n" + name + b"\n" + text(argument) + b"\x85R"


def array(shape: bytes, kind: bytes, raw: bytes, dtype_state: bytes = b"(K\x03X\x01\x00\x00\x00|NNNK\x00K\x00K\x00tb"):
    start = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R"
    dtype = b"cnumpy\ndtype\n" + text(kind) + b"K\x00K\x01\x87R" + dtype_state
    return start + b"(K\x01" + shape + dtype + b"\x89" + raw + b"tb"


def entry(value: bytes) -> bytes:
    """A dictionary with one entry, so that only `value` is wrong."""
    return b"\x80\x04}" + text(b"data") + value + b"s."


class Reduce:
    def __reduce__(self):
        return exec, (TOUCH.decode(),)


class State:
    def __getstate__(self):
        return {"a": 1}


CALLS = {
    f"call {module.decode()}.{name.decode()}": b"\x80\x02" + call(module, name) + b"."
    for module, name in [
        (b"os", b"system"), (b"posix", b"system"), (b"nt", b"system"), (b"subprocess", b"call"),
        (b"subprocess", b"Popen"), (b"builtins", b"eval"), (b"builtins", b"exec"), (b"__builtin__", b"eval"),
        (b"builtins", b"open"), (b"builtins", b"getattr"), (b"builtins", b"__import__"),
        (b"builtins", b"compile"), (b"builtins", b"bytes"), (b"builtins", b"bytearray"), (b"runpy", b"run_path"),
        (b"importlib", b"import_module"), (b"shutil", b"rmtree"), (b"pickle", b"loads"), (b"copyreg", b"__newobj__"),
        (b"functools", b"partial"), (b"operator", b"methodcaller"), (b"numpy", b"load"), (b"numpy", b"fromfile"),
        (b"numpy", b"memmap"), (b"numpy.core.multiarray", b"fromfile"), (b"numpy.f2py", b"compile"),
        (b"torch", b"load"), (b"torch._utils", b"_rebuild_tensor_v2"), (b"_codecs", b"decode"), (b"codecs", b"encode"),
    ]
}  # fmt: skip

OTHER_WAYS = {
    "as a value": entry(call(b"os", b"system")),
    "inside a list": entry(b"](" + call(b"builtins", b"exec") + b"e"),
    "as a key": b"\x80\x02}" + call(b"builtins", b"exec") + b"K\x01s.",
    "__reduce__": pickle.dumps({"a": Reduce()}),
    "an object of a class": pickle.dumps({"a": State()}),
    "INST": b"(S'" + TOUCH.replace(b"'", b'"') + b"'\nibuiltins\nexec\n.",
    "OBJ": b"\x80\x02(cbuiltins\nexec\n" + text(TOUCH) + b"o.",
    "NEWOBJ": b"\x80\x02cbuiltins\nexec\n" + text(TOUCH) + b"\x85\x81.",
    "NEWOBJ of an array": entry(b"cnumpy\nndarray\n)\x81"),
    "NEWOBJ_EX": b"\x80\x04" + short(b"builtins") + short(b"exec") + b"\x93" + text(TOUCH) + b"\x85}\x92.",
    "STACK_GLOBAL": b"\x80\x04" + short(b"builtins") + short(b"exec") + b"\x93" + text(TOUCH) + b"\x85R.",
    "dotted name": b"\x80\x04" + short(b"numpy") + short(b"ndarray.tofile") + b"\x93" + text(TOUCH) + b"\x85R.",
    "chain of attributes": b"\x80\x04" + short(b"builtins") + short(b"eval.__call__") + b"\x93)R.",
    "GLOBAL of the dunder": b"\x80\x02cnumpy\n__builtins__\n.",
    "numpy's own importer": b"\x80\x02cnumpy\ntest\n)R.",
    "BUILD on a class": entry(b"cnumpy\nndarray\n}" + text(b"__setstate__") + text(b"x") + b"sb"),
    "BUILD on a function": entry(b"c_codecs\nencode\nN}" + text(b"__defaults__") + text(b"x") + b"s\x86b)R"),
    "EXT1": b"\x80\x02\x82\x01.",
    "PERSID": b"\x80\x02Pmodule\n.",
    "BINPERSID": b"\x80\x02" + text(b"module") + b"Q.",
    "NEXT_BUFFER": b"\x80\x05\x97.",
    "calling a string": entry(text(b"os.system") + text(TOUCH) + b"\x85R"),
    "calling a dictionary": entry(b"}" + text(TOUCH) + b"\x85R"),
    "array with arguments": entry(b"cnumpy\nndarray\nK\x05\x85R"),
    "_reconstruct of a dtype": entry(b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\ndtype\nK\x00\x85C\x01b\x87R"),
}  # fmt: skip

BROKEN = {
    "empty": b"",
    "only a protocol": b"\x80\x02",
    "unknown protocol": b"\x80\x63}.",
    "no STOP": b"\x80\x02}",
    "garbage": bytes(range(256)),
    "a list": pickle.dumps([1, 2]),
    "an array alone": pickle.dumps(np.arange(3)),
    "None": b"N.",
    "numbers as keys": pickle.dumps({1: 2}),
    "str and bytes key alike": pickle.dumps({"data": 1, b"data": 2}),
    "key that is not ASCII": pickle.dumps({b"\xff": 1}),
    "unhashable key": b"\x80\x02}]K\x01s.",
    "stack underflow": b"\x80\x02s.",
    "memo never written": b"\x80\x02h\x05.",
    "memo bomb": entry(b"K\x01r\xff\xff\xff\x7f"),
    "memo bomb in text": b"}p99999999\n.",
    "length beyond the file": entry(b"\x8e" + struct.pack("<Q", 2**40)),
    "bytearray beyond the file": b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b".",
    "frame beyond the file": b"\x80\x04\x95" + struct.pack("<Q", 2**40) + b"}.",
    "negative length": b"\x80\x02T\xff\xff\xff\xff.",
    "huge number": b"I" + b"9" * 10_000 + b"\n.",
    "array of objects": pickle.dumps({"data": np.array([{}, None], dtype=object)}),
    "array of strings": pickle.dumps({"data": np.array(["a"])}, protocol=2),
    "array of records": pickle.dumps({"data": np.zeros(2, dtype=[("a", "i4")])}),
    "array of dates": pickle.dumps({"data": np.array(["2020-01-01"], dtype="M8[D]")}),
    "too few bytes": entry(array(b"(K\x05t", b"u1", b"C\x03abc")),
    "too many bytes": entry(array(b"(K\x02t", b"u1", b"C\x03abc")),
    "half an item": entry(array(b"(K\x01t", b"i8", b"C\x03abc")),
    "negative shape": entry(array(b"(J\xff\xff\xff\xfft", b"u1", b"C\x01a")),
    "huge shape": entry(array(b"(J\xff\xff\xff\x7fJ\xff\xff\xff\x7ft", b"u1", b"C\x01a")),
    "shape of strings": entry(array(b"(" + text(b"a") + b"t", b"u1", b"C\x01a")),
    "shape is no tuple": entry(array(b"K\x01", b"u1", b"C\x01a")),
    "list for bytes": entry(array(b"(K\x01t", b"O", b"](K\x01e")),
    "invented type": entry(array(b"(K\x01t", b"x9", b"C\x01a")),
    "type with fields": entry(array(b"(K\x01t", b"u1", b"C\x01a", b"(K\x03X\x01\x00\x00\x00|N}}K\x00K\x00K\x00tb")),
    "invented byte order": entry(array(b"(K\x01t", b"u1", b"C\x01a", b"(K\x03X\x01\x00\x00\x00!NNNK\x00K\x00K\x00tb")),
    "array never filled": entry(b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R"),
    "encode to another codec": entry(b"c_codecs\nencode\n" + text(b"a") + text(b"rot13") + b"\x86R"),
    "encode bomb": entry(b"c_codecs\nencode\nq\0" + text(b"a" * 1000) + b"\x85q\x01R0(" + b"h\0h\x01R" * 500 + b"t"),
    "nested ten thousand deep": b"\x80\x02" + b"]" * 10_000 + b"a" * 9_999 + b".",
}  # fmt: skip

TRUNCATED = {f"cut after {n} bytes": GOOD[:n] for n in range(2, len(GOOD) - 1, len(GOOD) // 20)}

CASES = {**CALLS, **OTHER_WAYS, **BROKEN, **TRUNCATED}


def test_there_are_many() -> None:
    assert len(CASES) >= 110
    assert unpickle.loads(GOOD, "good")["labels"] == [1, 2, 3]


@pytest.mark.parametrize("case", CASES)
def test_pickles_are_refused_and_never_run(case, tmp_path, refused) -> None:
    path = tmp_path / "batch.pkl"
    path.write_bytes(CASES[case])
    message = refused(lambda: unpickle.load(path), "batch.pkl")
    assert len(message) < 1000 + len(str(path))
    assert not list(tmp_path.rglob(SENTINEL))


@pytest.mark.parametrize("case", [*CALLS, "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "STACK_GLOBAL", "__reduce__"])
def test_the_message_names_what_was_asked_for(case) -> None:
    name = case.removeprefix("call ") if case in CALLS else "builtins.exec"
    with pytest.raises(ValueError, match="x: ") as caught:
        unpickle.loads(CASES[case], "x")
    assert name in str(caught.value) or name == "builtins.bytes"


def test_the_sentinel_would_show_an_execution(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    pickle.loads(OTHER_WAYS["STACK_GLOBAL"])
    assert (tmp_path / SENTINEL).exists()
