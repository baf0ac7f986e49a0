//! Results of the reference implementation of proposal 359; `cgo.txt` names its source.

use super::super::uiv::{Et, Prf};
use super::super::*;
use alloc::vec::Vec;

/// The fields of each case of a kind, without the kind.
fn cases(kind: &str) -> Vec<Vec<&'static str>> {
    let lines = include_str!("cgo.txt").lines();
    let found: Vec<_> = lines
        .filter_map(|line| line.split_once(' ').filter(|(first, _)| *first == kind))
        .map(|(_, rest)| rest.split(' ').collect())
        .collect();
    assert!(!found.is_empty(), "{kind}");
    found
}

fn bytes<const N: usize>(hex: &str) -> [u8; N] {
    let pair = |at: usize| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).expect("hexadecimal");
    assert_eq!(hex.len(), 2 * N);
    core::array::from_fn(pair)
}

fn command(hex: &str) -> Command {
    Command::new(bytes::<1>(hex)[0])
}

fn body(left: &str, right: &str) -> [u8; BODY_LEN] {
    let mut body = [0; BODY_LEN];
    body[..TAG_LEN].copy_from_slice(&bytes::<16>(left));
    body[TAG_LEN..].copy_from_slice(&bytes::<493>(right));
    body
}

fn state([keys, nonce, chain]: [&str; 3]) -> State {
    State { keys: bytes(keys), nonce: bytes(nonce), chain: bytes(chain) }
}

/// The state by which two ciphers are compared.
fn parts(state: &State) -> ([u8; KEYS_LEN], Block, Block) {
    (state.keys, state.nonce, state.chain)
}

#[test]
fn the_tweakable_cipher_matches_the_reference() {
    for case in cases("et") {
        let [direction, keys, tweak, block, expected] = case[..] else { panic!("{case:?}") };
        let all: [u8; 510] = bytes(tweak);
        let tweak = Tweak { chain: all.first_chunk().expect("a block"), command: all[16] };
        let right = all.last_chunk().expect("long enough");
        let mut block = bytes(block);
        match direction {
            "encrypt" => Et::<Aes128Enc>::new(&bytes(keys)).encrypt(tweak, right, &mut block),
            _ => Et::<Aes128Dec>::new(&bytes(keys)).decrypt(tweak, right, &mut block),
        }
        assert_eq!(block, bytes(expected));
    }
}

#[test]
fn the_pseudorandom_function_matches_the_reference() {
    for case in cases("prf") {
        let [keys, which, input, expected] = case[..] else { panic!("{case:?}") };
        let mut prf = Prf::new(&bytes(keys));
        if which == "0" {
            let mut out = [0; 493];
            prf.xor_first(&bytes(input), &mut out);
            assert_eq!(out, bytes(expected));
        } else {
            assert_eq!(prf.second(&bytes(input)), bytes(expected));
        }
    }
}

#[test]
fn the_wide_block_cipher_matches_the_reference() {
    for case in cases("uiv") {
        let [direction, keys, tweak, left, right, left_after, right_after] = case[..] else {
            panic!("{case:?}")
        };
        let all: [u8; 17] = bytes(tweak);
        let tweak = Tweak { chain: all.first_chunk().expect("a block"), command: all[16] };
        let mut cell = body(left, right);
        match direction {
            "encrypt" => Uiv::<Aes128Enc>::new(&bytes(keys)).encrypt(tweak, &mut cell),
            _ => Uiv::<Aes128Dec>::new(&bytes(keys)).decrypt(tweak, &mut cell),
        }
        assert_eq!(cell, body(left_after, right_after));
    }
}

#[test]
fn the_key_update_matches_the_reference() {
    for case in cases("update") {
        let [keys, nonce, keys_after, nonce_after] = case[..] else { panic!("{case:?}") };
        let none = "00000000000000000000000000000000";
        let mut found = state([keys, nonce, none]);
        let mut uiv = Uiv::<Aes128Enc>::new(&found.keys);
        found.update(&mut uiv);
        assert_eq!(parts(&found), parts(&state([keys_after, nonce_after, none])));
        // The cipher has updated them.
        assert_eq!(uiv.next_seed(&[7; 16]), Uiv::<Aes128Dec>::new(&found.keys).next_seed(&[7; 16]));
    }
}

#[test]
fn relayed_cells_match_the_reference() {
    for case in cases("relay") {
        let [direction, keys, nonce, chain, cmd, left, right, ref after @ ..] = case[..] else {
            panic!("{case:?}")
        };
        let [keys_after, nonce_after, chain_after, left_after, right_after] = after[..] else {
            panic!("{case:?}")
        };
        let (mut found, mut cell) = (state([keys, nonce, chain]), body(left, right));
        let mut uiv = Uiv::new(&found.keys);
        if direction == "back" {
            found.encrypt(&mut uiv, command(cmd), &mut cell);
        } else {
            found.recognize(&mut uiv, command(cmd), &mut cell);
        }
        assert_eq!(cell, body(left_after, right_after));
        assert_eq!(parts(&found), parts(&state([keys_after, nonce_after, chain_after])));
    }
}

#[test]
fn cells_from_a_relay_match_the_reference() {
    for case in cases("originate") {
        let [keys, nonce, chain, cmd, right, ref after @ ..] = case[..] else { panic!("{case:?}") };
        let [keys_after, nonce_after, chain_after, left_after, right_after] = after[..] else {
            panic!("{case:?}")
        };
        let mut found = state([keys, nonce, chain]);
        let mut cell = body("ffffffffffffffffffffffffffffffff", right);
        let mut uiv = Uiv::new(&found.keys);
        found.originate(&mut uiv, command(cmd), &mut cell);
        assert_eq!(cell, body(left_after, right_after));
        assert_eq!(parts(&found), parts(&state([keys_after, nonce_after, chain_after])));
    }
}

#[test]
fn cells_from_a_client_match_the_reference() {
    for case in cases("client") {
        let states = |words: &[&'static str]| {
            let words = words.chunks(3).map(|chunk| [chunk[0], chunk[1], chunk[2]]);
            words.map(state).collect::<Vec<_>>()
        };
        let (mut found, expected) = (states(&case[..9]), states(&case[12..21]));
        let hop: usize = case[9].parse().expect("a number");
        let mut cell = body("ffffffffffffffffffffffffffffffff", case[11]);
        let (last, before) = found[..hop].split_last_mut().expect("a hop");
        last.seal(&mut Uiv::new(&last.keys), command(case[10]), &mut cell);
        for earlier in before.iter_mut().rev() {
            earlier.decrypt(&mut Uiv::new(&earlier.keys), command(case[10]), &mut cell);
        }
        assert_eq!(cell, body(case[21], case[22]));
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(parts(found), parts(expected));
        }
    }
}
