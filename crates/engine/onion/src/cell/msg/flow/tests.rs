use super::super::{CircuitPadding, CircuitPaddingAnswer, LinkPadding};
use super::*;
use alloc::vec;
use proptest::prelude::*;

fn encode(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = vec![];
    write(&mut out);
    out
}

proptest! {
    #[test]
    fn flow_control_messages_survive_a_round_trip(tag: [u8; 20], advised_kbyte_per_s: u32) {
        for sendme in [Sendme::Bare, Sendme::Tagged(&tag), Sendme::Tagged(&tag[..16])] {
            let data = encode(|out| sendme.encode_into(out));
            prop_assert_eq!(Sendme::parse(&data), Ok(sendme));
        }
        let xon = Xon { advised_kbyte_per_s };
        prop_assert_eq!(Xon::parse(&encode(|out| xon.encode_into(out))), Ok(xon));
        prop_assert_eq!(Xoff::parse(&encode(|out| Xoff.encode_into(out))), Ok(Xoff));
    }

    #[test]
    fn padding_messages_survive_a_round_trip(
        yes: bool, no: bool, low_ms: u16, high_ms: u16, machine: u8, counter: u32,
    ) {
        let link = LinkPadding { is_wanted: yes, low_ms, high_ms };
        prop_assert_eq!(LinkPadding::parse(&encode(|out| link.encode_into(out))), Ok(link));
        let question = CircuitPadding { is_start: yes, machine, wants_echo: no, counter };
        prop_assert_eq!(CircuitPadding::parse(&encode(|out| question.encode_into(out))), Ok(question));
        let answer = CircuitPaddingAnswer { is_start: yes, is_done: no, machine, counter };
        let data = encode(|out| answer.encode_into(out));
        prop_assert_eq!(CircuitPaddingAnswer::parse(&data), Ok(answer));
        let refusal = CircuitPaddingAnswer { is_start: true, is_done: false, machine, counter };
        prop_assert_eq!(question.refusal(), yes.then_some(refusal));
    }

    #[test]
    fn arbitrary_bytes_never_panic(data in prop::collection::vec(any::<u8>(), 0..40)) {
        let _ = Sendme::parse(&data);
        let _ = Xon::parse(&data);
        let _ = Xoff::parse(&data);
        let _ = LinkPadding::parse(&data);
        let _ = CircuitPadding::parse(&data);
        let _ = CircuitPaddingAnswer::parse(&data);
    }
}

#[test]
fn unknown_versions_are_rejected() {
    assert!(Xon::parse(&[1, 0, 0, 0, 0]).is_err());
    assert!(Xoff::parse(&[1]).is_err());
    assert!(LinkPadding::parse(&[1, 2, 0, 0, 0, 0]).is_err());
    assert_eq!(Sendme::parse(&[2, 0, 1, 9]), Ok(Sendme::Unknown(2)));
    assert!(Sendme::parse(&[1, 0, 20, 9]).is_err());
}
