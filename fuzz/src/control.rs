use crate::input::{Input, pieces};
use lab::control::BwEvent;
use lab::control::parse::{Message, ParseError, Parser};

fn parse(pieces: &[&[u8]]) -> (Vec<Message>, Result<(), ParseError>) {
    let mut parser = Parser::new();
    let end = pieces.iter().try_for_each(|piece| parser.feed(piece));
    (std::iter::from_fn(|| parser.next_message()).collect(), end)
}

/// Bytes at the control port yield the same messages, however they are split.
pub fn control_port(data: &[u8]) {
    let mut input = Input::new(data);
    let cuts = input.cuts();
    let stream = input.rest();
    let (messages, end) = parse(&[stream]);
    let size: usize = messages.iter().flat_map(|message| &message.lines).map(size).sum();
    assert!(size <= 3 * stream.len(), "a byte that is no text becomes three");
    for message in &messages {
        assert!(!message.lines.is_empty() && message.code < 1000);
        let _ = BwEvent::parse(message.text());
    }
    assert_eq!(parse(&pieces(stream, &cuts)), (messages, end));
}

fn size(line: &lab::control::parse::Line) -> usize {
    line.text.len() + line.data.as_ref().map_or(0, String::len)
}
