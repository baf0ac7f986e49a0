use crate::cell::relay::{MAX_DATA_LEN, RelayCommand, RelayFormat};
use crate::cell::{CircId, Command};
use crate::cell_model::fixture::Staged;
use crate::cell_model::{Body, Cell, HeaderOnly, Message, PayloadSlice, StreamId, Tor};
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

fn format(is_v1: bool) -> RelayFormat {
    if is_v1 { RelayFormat::V1 } else { RelayFormat::V0 }
}

/// A message can be read as it was written, whatever the body held before.
fn round_trip<S: Staged>(
    format: RelayFormat,
    (command, stream_id): (u8, u16),
    data: &[u8],
    before: &[u8],
) -> TestCaseResult {
    let mut body = S::Body::from_bytes(before);
    let (command, stream_id) = (RelayCommand(command), StreamId(stream_id));
    let message = Message { command, stream_id, data: S::PayloadSlice::from_bytes(data) };
    let is_well_formed = format == RelayFormat::V0
        || (command.is_known() && command.is_of_streams() == (stream_id.0 > 0));
    if data.len() > format.max_data_len(command) || !is_well_formed {
        prop_assert!(body.write(format, &message).is_err());
        return Ok(());
    }
    prop_assert!(body.write(format, &message).is_ok());
    // Room for padding of four bytes, and for as many random ones as there are.
    if command == RelayCommand::DATA && data.len() + 20 <= format.max_data_len(command) {
        body.salt(format, data.len() + 4, &[0xab; 16]);
    }
    let found = body.message(format).expect("just written");
    prop_assert_eq!((found.command, found.stream_id), (command, stream_id));
    prop_assert_eq!((found.data.len(), found.data.bytes()), (data.len(), data));
    prop_assert_eq!(found.data.is_empty(), data.is_empty());
    Ok(())
}

/// Data that is generated in place can be read as it was written, too.
fn data_round_trip<S: Staged>(
    format: RelayFormat,
    stream_id: u16,
    from: u64,
    len: usize,
    room: usize,
) -> TestCaseResult {
    let mut body = S::Body::from_bytes(b"of earlier use");
    let filled = body.write_data(format, StreamId(stream_id), room, |room| S::put(room, from, len));
    let most = format.max_data_len(RelayCommand::DATA);
    prop_assert_eq!(filled, len.min(room).min(most));
    let found = body.message(format).expect("just written");
    let head = (found.command, found.stream_id, found.data.len());
    prop_assert_eq!(head, (RelayCommand::DATA, StreamId(stream_id), filled));
    prop_assert!(S::is_from(found.data, from));
    let (first, rest) = found.data.split_at(filled / 3);
    prop_assert_eq!((first.len(), rest.len()), (filled / 3, filled - filled / 3));
    prop_assert!(S::is_from(first, from) && S::is_from(rest, from + filled as u64 / 3));
    Ok(())
}

/// One cell for each number.
fn cells<S: Staged>(numbers: &[u8]) -> Vec<S::Cell> {
    let one = |number: &u8| {
        let mut cell = S::Cell::EMPTY;
        let body = cell.begin(CircId::new(u32::from(*number)), Command::new(number % 7));
        *body = S::Body::from_bytes(&[*number; 9]);
        cell
    };
    numbers.iter().map(one).collect()
}

fn is_cell<S: Staged>(cell: &S::Cell, number: u8) -> bool {
    cell.circ_id() == CircId::new(u32::from(number))
        && cell.command() == Command::new(number % 7)
        && cell.body().bytes().starts_with(&[number; 9])
}

fn shift<S: Staged>(numbers: &[u8], at: usize) {
    let mut from = cells::<S>(numbers);
    let mut to = vec![S::Cell::EMPTY; numbers.len()];
    to[0] = cells::<S>(&[77]).remove(0);
    let (early, late) = to.split_at_mut(at);
    S::Cell::shift(&mut from[..at], early);
    S::Cell::shift(&mut from[at..], late);
    assert!(to.iter().zip(numbers).all(|(cell, number)| is_cell::<S>(cell, *number)));
}

proptest! {
    #[test]
    fn messages_survive_a_round_trip(
        is_v1: bool,
        command in prop_oneof![Just(2u8), 0u8..48, any::<u8>()],
        stream_id in prop_oneof![Just(0u16), any::<u16>()],
        data in prop::collection::vec(any::<u8>(), 0..MAX_DATA_LEN + 5),
        before in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        let head = (command, stream_id);
        round_trip::<Tor>(format(is_v1), head, &data, &before)?;
        round_trip::<HeaderOnly>(format(is_v1), head, &data, &before)?;
    }

    #[test]
    fn generated_data_survives_a_round_trip(
        is_v1: bool, stream_id: u16, from in 0u64..1 << 33, len in 0usize..600, room in 0usize..600,
    ) {
        data_round_trip::<Tor>(format(is_v1), stream_id, from, len, room)?;
        data_round_trip::<HeaderOnly>(format(is_v1), stream_id, from, len, room)?;
    }

    #[test]
    fn shift_moves_cells_in_order(numbers in prop::collection::vec(any::<u8>(), 1..40), at: prop::sample::Index) {
        let at = at.index(numbers.len());
        shift::<Tor>(&numbers, at);
        shift::<HeaderOnly>(&numbers, at);
    }
}

/// A message written over the data of an earlier one leaves nothing of it: relay cells must not reveal earlier
/// content of their memory.
#[test]
fn a_reused_body_reveals_no_earlier_content() {
    let mut body = [0xee; 509];
    let written = Body::<Tor>::write_data(&mut body, RelayFormat::V0, StreamId(1), 3, |room| {
        room.fill(1);
        room.len()
    });
    assert_eq!((written, &body[11..14]), (3, &[1, 1, 1][..]));
    assert!(body[14..].iter().all(|byte| *byte == 0));
}
