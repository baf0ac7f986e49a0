use super::*;
use alloc::vec;
use proptest::prelude::*;

/// Each field as in proposal 329 §2.2.
#[test]
fn link_has_the_layout_of_proposal_329() {
    let link = ConfluxLink {
        nonce: ConfluxNonce([0xab; 32]),
        last_sent: 0x0102_0304_0506_0708,
        last_received: 9,
        desired: DesiredUx::HighThroughput,
        resumes: false,
        leg: 0,
        first_leg: 0,
    };
    let mut expected = vec![1];
    expected.extend_from_slice(&[0xab; 32]);
    expected.extend_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 9, 3]);
    let mut data = vec![];
    link.encode_into(&mut data);
    assert_eq!(data, expected);
    data.resize(498, 0);
    assert_eq!(ConfluxLink::parse(&data), Ok(link), "padding is ignored");
    let resuming = ConfluxLink { resumes: true, leg: 7, first_leg: 3, ..link };
    let mut data = vec![];
    resuming.encode_into(&mut data);
    assert_eq!((data.len(), &data[50..]), (53, &[3, 7, 3][..]), "padding to other implementations");
    // Version 0.1.0 sent 2 without a first leg: with such a peer there is no retransmission.
    data[50] = 2;
    assert_eq!(ConfluxLink::parse(&data).map(|link| link.resumes), Ok(false));
}

#[test]
fn a_link_with_unknown_values_is_rejected() {
    let mut data = vec![1; 50];
    assert!(ConfluxLink::parse(&data).is_ok());
    for (place, value) in [(0, 0), (0, 2), (49, 5), (49, 255)] {
        data[place] = value;
        assert!(ConfluxLink::parse(&data).is_err(), "{value} at {place}");
        data[place] = 1;
    }
    assert!(ConfluxLink::parse(&data[..49]).is_err(), "cut off");
}

#[test]
fn a_switch_is_four_bytes_and_may_be_padded() {
    let mut data = vec![];
    ConfluxSwitch { skipped: 0x0102_0304 }.encode_into(&mut data);
    assert_eq!(data, [1, 2, 3, 4]);
    data.resize(498, 0);
    assert_eq!(ConfluxSwitch::parse(&data), Ok(ConfluxSwitch { skipped: 0x0102_0304 }));
    assert!(ConfluxSwitch::parse(&data[..3]).is_err());
}

#[test]
fn a_nonce_is_never_logged() {
    let shown = alloc::format!("{:?}", ConfluxNonce([0x5a; 32]));
    assert!(!shown.contains("90") && !shown.contains("5a"), "{shown}");
}

proptest! {
    #[test]
    fn conflux_messages_survive_a_round_trip(
        nonce: [u8; 32], last_sent: u64, last_received: u64, desired in 0usize..5, resumes: bool,
        leg: u8, first_leg: u8, skipped: u32, lost: Vec<u8>,
    ) {
        let desired = DesiredUx::ALL[desired];
        let nonce = ConfluxNonce(nonce);
        let (leg, first_leg) = if resumes { (leg, first_leg) } else { (0, 0) };
        let link =
            ConfluxLink { nonce, last_sent, last_received, desired, resumes, leg, first_leg };
        let mut data = vec![];
        link.encode_into(&mut data);
        prop_assert_eq!(ConfluxLink::parse(&data), Ok(link));
        let mut data = vec![];
        ConfluxSwitch { skipped }.encode_into(&mut data);
        prop_assert_eq!(ConfluxSwitch::parse(&data), Ok(ConfluxSwitch { skipped }));
        for note in [ConfluxNote::LostLegs(&lost), ConfluxNote::Arrived(last_sent)] {
            let mut data = vec![];
            note.encode_into(&mut data);
            prop_assert_eq!(ConfluxNote::parse(&data), Ok(note));
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(data in prop::collection::vec(any::<u8>(), 0..80)) {
        let mut back = vec![];
        if let Ok(link) = ConfluxLink::parse(&data) {
            link.encode_into(&mut back);
            prop_assert_eq!(&data[..back.len()], &back[..]);
        }
        let _ = (ConfluxSwitch::parse(&data), ConfluxNote::parse(&data));
    }
}
