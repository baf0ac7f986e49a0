"""A third implementation of the target's checks, from docs/protocol.md and docs/vectors alone.

third_implementation.py FOLDER answers the orders and proofs of the vectors as a target, and returns and checks cells. It prints what differs, and ends
with status 1 then; with 77 if the module `cryptography` is missing.
"""

import hashlib
import hmac
import json
import pathlib
import sys

try:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
except ImportError:
    sys.exit(77)

MESSAGE = {1: None, 2: 64, 3: 32, 4: 32, 5: 2, 6: 8, 7: 8, 8: 2, 9: None, 10: 40}
ORDER = {1: 32, 2: 20, 3: 32, 4: 32, 5: 2, 6: 2, 7: 2, 8: 8, 9: 32}
NEEDED = {1: [1, 2], 2: [3], 3: [3, 4, 2], 4: [], 5: [5, 6, 7], 6: [8]}
FIELD_P = 2**255 - 19
GROUP_ORDER = 2**252 + 27742317777372353535851937790883648493
# The y coordinates of the points of small order (RFC 7748, section 7, as Edwards points): 1, -1, 0 and two of order eight.
SMALL_Y = [1, FIELD_P - 1, 0, 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7,
           0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826]


class Refused(Exception):
    pass


def fields(data, lengths, repeated):
    """The fields of known types; those of type `repeated` as a list."""
    found = {repeated: []}
    while data:
        kind, length = int.from_bytes(data[:2], "big"), int.from_bytes(data[2:4], "big")
        value, rest = data[4:4 + length], data[4 + length:]
        if len(data) < 4 or len(value) < length:
            raise Refused(15)
        data = rest
        if kind not in lengths:
            continue
        if lengths[kind] not in (None, length) or (kind != repeated and kind in found):
            raise Refused(15)
        if kind == repeated:
            found[kind].append(value)
        else:
            found[kind] = value
    if len(found[repeated]) > 32:
        raise Refused(15)
    return found


def is_signed(key, text, signature):
    y = int.from_bytes(key, "little") % 2**255
    if y % FIELD_P in SMALL_Y or int.from_bytes(signature[32:], "little") >= GROUP_ORDER:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, text)
        return True
    except (InvalidSignature, ValueError):
        return False


class Target:
    def __init__(self, vectors):
        self.relay = vectors["relay"]
        self.exported = bytes.fromhex(vectors["exported"])
        self.running, self.links, self.accepted = None, 0, []

    def answer(self, data, now):
        try:
            if not data or data[0] not in NEEDED:
                raise Refused(15)
            message = fields(data[1:], MESSAGE, 10)
            if any(kind not in message for kind in NEEDED[data[0]]):
                raise Refused(15)
            {1: self.order, 3: self.proof}[data[0]](message, now)
            return 0
        except Refused as refused:
            return refused.args[0]

    def order(self, message, now):
        order = fields(message[1], ORDER, 4)
        if any(kind not in order for kind in (1, 2, 5, 7, 8, 9)):
            raise Refused(15)
        number = {kind: int.from_bytes(order[kind], "big") for kind in (5, 6, 7, 8) if kind in order}
        if number.get(6, 250) >= 1000:
            raise Refused(15)
        signed = b"FlashFlow order 1\0" + self.exported + message[1]
        self.accepted = [it for it in self.accepted if now - self.relay["period"] < it[0] <= now]
        used = [nonce for _, _, nonce in self.accepted]
        checks = [
            (2, order[1].hex() in self.relay["coordinators"] and is_signed(order[1], signed, message[2])),
            (4, (order[2].hex(), order.get(3, b"").hex()) == (self.relay["rsa"], self.relay["ed25519"])),
            (11, number[5] > 0 and number[7] > 0 and order[4]),
            (9, number[5] <= self.relay["max_duration"]),
            (5, number[8] >= now),
            (6, number[8] <= now + 3600),
            (7, order[9] not in used),
            (10, self.running is None),
            (8, [key for _, key, _ in self.accepted].count(order[1]) < self.relay["quota"]),
        ]
        for code, passes in checks:
            if not passes:
                raise Refused(code)
        self.running, self.links = order, 0
        self.accepted.append((now, order[1], order[9]))

    def proof(self, message, _now):
        if self.running is None or message[3] != self.running[9]:
            raise Refused(12)
        if message[4] not in self.running[4]:
            raise Refused(13)
        signed = b"FlashFlow proof 1\0" + self.exported + bytes.fromhex(self.relay["rsa"]) + message[3]
        if not is_signed(message[4], signed, message[2]):
            raise Refused(3)
        if self.links >= int.from_bytes(self.running[7], "big"):
            raise Refused(14)
        self.links += 1


def forward_key(vectors):
    """KDF-TOR (tor-spec): what CREATE_FAST and CREATED_FAST agree on."""
    secret = bytes.fromhex(vectors["x"] + vectors["y"])
    stream = b"".join(hashlib.sha1(secret + bytes([block])).digest() for block in range(5))
    assert stream[:20].hex() == vectors["key_hash"], "the key hash of CREATED_FAST"
    return stream[60:76]


def returned(key, number, sent):
    """The cell with this number, checked alone: its keystream begins at 509 times the number, within an AES block."""
    block, skipped = divmod(509 * number, 16)
    cipher = Cipher(algorithms.AES(key), modes.CTR(block.to_bytes(16, "big"))).encryptor()
    cipher.update(bytes(skipped))
    return cipher.update(sent)


def exported(secret, label):
    """RFC 8446, section 7.5, with an empty context, for SHA-256."""
    def expand(key, name, context):
        name = b"tls13 " + name
        info = (32).to_bytes(2, "big") + bytes([len(name)]) + name + bytes([32]) + context
        return hmac.new(key, info + b"\x01", hashlib.sha256).digest()
    empty = hashlib.sha256(b"").digest()
    return expand(expand(secret, label, empty), b"exporter", empty)


def main():
    folder, differences = pathlib.Path(sys.argv[1]), 0

    def compare(what, found, expected):
        nonlocal differences
        if found != expected:
            differences += 1
            print(f"{what}: {found}, but the vector has {expected}")

    for name in ("orders.json", "proofs.json"):
        vectors = json.loads((folder / name).read_text())
        target = Target(vectors)
        if "order" in vectors:
            compare("the running order", target.answer(bytes.fromhex(vectors["order"]), vectors["cases"][0]["at"]), 0)
        for case in vectors["cases"]:
            compare(case["name"], target.answer(bytes.fromhex(case["message"]), case["at"]), case["answer"])
            if case["then_the_coordinator_leaves"]:
                target.running = None
    vectors = json.loads((folder / "cells.json").read_text())
    key = forward_key(vectors)
    compare("the forward key", key.hex(), vectors["forward_key"])
    for cell in vectors["cells"]:
        found = returned(key, cell["number"], bytes.fromhex(cell["sent"]))
        compare(f"cell {cell['number']}", found.hex(), cell["returned"])
    vectors = json.loads((folder / "exporter.json").read_text())
    found = exported(bytes.fromhex(vectors["exporter_secret"]), vectors["label"].encode())
    compare("the exported keying material", found.hex(), vectors["exported"])
    sys.exit(1 if differences else 0)


main()
