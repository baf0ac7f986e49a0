//! Parses messages of programs up to the request.
//!
//! Messages may be split anywhere, and several may arrive at once. In that case C tor overwrites
//! the reply to the first by that to the second; here each gets its own reply, as RFC 1928
//! requires. There is no other difference.

use super::hosts::Host;
use super::{Act, Dialect, Refusal, Request, Status};
use crate::pool::Isolation;
use std::net::IpAddr;

/// The longest SOCKS 4 message: C tor's limit.
const MESSAGE_MAX: usize = 512;
/// The longest user name and host name in SOCKS 4 and 4a.
const USER_MAX: usize = 512;
const HOST_MAX: usize = 255;
/// Authentication methods (RFC 1928 §3).
const NO_AUTHENTICATION: u8 = 0;
const USER_AND_PASSWORD: u8 = 2;
/// User names with this prefix are reserved by tor, which defines one (`socks-extensions`, proposal
/// 351).
const TORS_OWN: &[u8] = b"<torS0X>";
const TORS_PLAIN: &[u8] = b"<torS0X>0";

/// Sent to clients that mistake the port for an HTTP proxy.
const NOT_HTTP: &str = "HTTP/1.0 501 This port speaks SOCKS, not HTTP\r\n\
    Content-Type: text/html; charset=utf-8\r\n\
    Connection: close\r\n\r\n\
    <!DOCTYPE html>\n<title>A SOCKS port, not an HTTP proxy</title>\n\
    <h1>A SOCKS port, not an HTTP proxy</h1>\n\
    <p>This is the SOCKS port of a Tor client (<code>flashflow-lab client</code>). It understands SOCKS 4, 4a and 5, and no \
    HTTP. Enter its address as the SOCKS proxy of your browser or program, not as its HTTP proxy, and let host names \
    be resolved by the proxy: with curl, <code>--socks5-hostname ADDRESS:PORT</code>.</p>\n";

/// A program that has not completed its request.
pub(in crate::proxy) struct Greeting {
    /// Its address, if known.
    from: Option<IpAddr>,
    /// An incomplete message: less than [`MESSAGE_MAX`] and two bytes.
    buffer: Vec<u8>,
    /// A method of SOCKS 5 has been negotiated.
    is_version5: bool,
    /// The user name and password are expected next.
    must_authenticate: bool,
    credentials: Option<(Vec<u8>, Vec<u8>)>,
}

/// The progress of a greeting.
pub(in crate::proxy) enum Step {
    /// More data is needed.
    More,
    /// A request, and the bytes sent after it.
    Wants(Request, Vec<u8>),
    /// The message is malformed or unsupported.
    Refused(Refusal),
}

/// Why there is no message.
enum Stop {
    More,
    Refused(Refusal),
}

impl Stop {
    fn refused(reply: Vec<u8>, reason: impl Into<String>) -> Self {
        Self::Refused(Refusal { reply, reason: reason.into(), target: None })
    }
}

/// Reads the fields of a message.
struct Message<'a> {
    rest: &'a [u8],
}

impl<'a> Message<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Stop> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(Stop::More)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Stop> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Stop::More)?;
        self.rest = rest;
        Ok(*taken)
    }

    fn u8(&mut self) -> Result<u8, Stop> {
        self.array().map(u8::from_be_bytes)
    }

    fn u16(&mut self) -> Result<u16, Stop> {
        self.array().map(u16::from_be_bytes)
    }

    /// A length byte and the bytes that it counts.
    fn counted(&mut self) -> Result<&'a [u8], Stop> {
        let len = self.u8()?;
        self.take(len.into())
    }

    /// The bytes before the next NUL, which is consumed.
    fn terminated(&mut self) -> Result<&'a [u8], Stop> {
        let len = self.rest.iter().position(|byte| *byte == 0).ok_or(Stop::More)?;
        let text = self.take(len)?;
        self.take(1)?;
        Ok(text)
    }
}

impl Greeting {
    pub(in crate::proxy) const fn new(from: Option<IpAddr>) -> Self {
        Self {
            from,
            buffer: Vec::new(),
            is_version5: false,
            must_authenticate: false,
            credentials: None,
        }
    }

    /// Processes received bytes. Appends replies to `answer`.
    pub(in crate::proxy) fn handle_bytes(&mut self, input: &[u8], answer: &mut Vec<u8>) -> Step {
        self.buffer.extend_from_slice(input);
        loop {
            let buffer = std::mem::take(&mut self.buffer);
            let mut message = Message { rest: &buffer };
            match self.handle_message(&mut message, answer) {
                Ok(None) => self.buffer = message.rest.to_vec(),
                Ok(Some(request)) => return Step::Wants(request, message.rest.to_vec()),
                Err(Stop::Refused(refusal)) => return Step::Refused(refusal),
                Err(Stop::More) => {
                    self.buffer = buffer;
                    return Step::More;
                }
            }
        }
    }

    /// Parses the next message. `None` if it is not a request.
    fn handle_message(
        &mut self,
        message: &mut Message<'_>,
        answer: &mut Vec<u8>,
    ) -> Result<Option<Request>, Stop> {
        let [first, _, ..] = *message.rest else { return Err(Stop::More) };
        let is_authentication =
            self.credentials.is_none() && (first == 1 || self.must_authenticate);
        match first {
            4 => self.read_request4(message).map(Some),
            1 | 5 if is_authentication => {
                self.read_credentials(message)?;
                answer.extend_from_slice(&[1, 0]);
                Ok(None)
            }
            1 | 5 if !self.is_version5 => {
                answer.extend_from_slice(&[5, self.choose_method(message)?]);
                Ok(None)
            }
            1 | 5 => self.read_request5(message).map(Some),
            b'G' | b'H' | b'P' | b'C' => {
                let reason = "the program speaks HTTP, and this port only SOCKS";
                Err(Stop::refused(NOT_HTTP.into(), reason))
            }
            version => {
                let reason = format!("unknown SOCKS version {version}; 4, 4a and 5 are known");
                Err(Stop::refused(self.failure(), reason))
            }
        }
    }

    const fn dialect5(&self) -> Dialect {
        Dialect::V5 { is_ipv6: matches!(self.from, Some(IpAddr::V6(_))) }
    }

    /// No reply is sent before the version is known.
    fn failure(&self) -> Vec<u8> {
        match self.is_version5 {
            true => self.dialect5().status(Status::GENERAL_FAILURE),
            false => Vec::new(),
        }
    }

    /// Selects a method of SOCKS 5: user name and password before none, since they isolate streams.
    fn choose_method(&mut self, message: &mut Message<'_>) -> Result<u8, Stop> {
        let _version = message.u8()?;
        let methods = message.counted()?;
        if methods.is_empty() {
            return Err(Stop::refused(Vec::new(), "SOCKS 5: no method to authenticate is offered"));
        }
        let chosen = [USER_AND_PASSWORD, NO_AUTHENTICATION]
            .into_iter()
            .find(|method| methods.contains(method));
        let Some(method) = chosen else {
            let reason =
                "SOCKS 5: neither no authentication (0) nor user and password (2) is offered";
            return Err(Stop::refused(vec![5, 0xff], reason));
        };
        self.is_version5 = true;
        self.must_authenticate = method == USER_AND_PASSWORD;
        Ok(method)
    }

    /// User name and password (RFC 1929). Any are accepted, including empty ones.
    fn read_credentials(&mut self, message: &mut Message<'_>) -> Result<(), Stop> {
        let refused = |reason| Stop::refused(self.failure(), reason);
        if message.u8()? != 1 {
            return Err(refused(
                "SOCKS 5: user and password were negotiated, but another message arrived",
            ));
        }
        let (user, password) = (message.counted()?, message.counted()?);
        if user.starts_with(TORS_OWN) && user != TORS_PLAIN {
            let reason = "SOCKS 5: of user names that begin with <torS0X> only <torS0X>0 is known";
            return Err(refused(reason));
        }
        if !self.is_version5 {
            return Err(refused("SOCKS 5: user and password arrived before the methods"));
        }
        self.credentials = Some((user.to_vec(), password.to_vec()));
        Ok(())
    }

    fn isolation(&self, version: u8) -> Isolation {
        let (user, password) = self.credentials.clone().unwrap_or_default();
        Isolation { version, from: self.from, user, password }
    }

    /// A SOCKS 5 request (RFC 1928 §4). Invalid bytes are refused on arrival.
    fn read_request5(&self, message: &mut Message<'_>) -> Result<Request, Stop> {
        // C tor's parser cannot produce an IPv6 reply here.
        let plain = Dialect::V5 { is_ipv6: false };
        let refused = |status, reason: String| Stop::refused(plain.status(status), reason);
        let failed = |reason: String| refused(Status::GENERAL_FAILURE, reason);
        if message.u8()? != 5 {
            return Err(failed("SOCKS 5: the request is of another version".to_owned()));
        }
        let act = match message.u8()? {
            1 => Some(Act::Connect),
            0xf0 => Some(Act::Resolve),
            0xf1 => Some(Act::ResolveName),
            2 | 3 => None,
            other => return Err(failed(format!("SOCKS 5: command {other} is unknown"))),
        };
        if message.u8()? != 0 {
            return Err(failed("SOCKS 5: the reserved byte is not 0".to_owned()));
        }
        let host = match message.u8()? {
            1 => Some(Host::Address(IpAddr::from(message.array::<4>()?))),
            3 => Host::parse(message.counted()?),
            4 => Some(Host::Address(IpAddr::from(message.array::<16>()?))),
            other => return Err(failed(format!("SOCKS 5: address type {other} is unknown"))),
        };
        let port = message.u16()?;
        let Some(act) = act else {
            let reason =
                "SOCKS 5: of the commands only CONNECT, RESOLVE and RESOLVE_PTR are supported";
            return Err(refused(Status::COMMAND_NOT_SUPPORTED, reason.to_owned()));
        };
        let has_address = host.as_ref().is_some_and(|host| host.address().is_some());
        if act == Act::ResolveName && !has_address {
            let reason = "SOCKS 5: RESOLVE_PTR requires an address";
            return Err(refused(Status::ADDRESS_TYPE_NOT_SUPPORTED, reason.to_owned()));
        }
        let host = host.ok_or_else(|| failed("SOCKS 5: the host name is malformed".to_owned()))?;
        Ok(Request::new(self.dialect5(), act, host, port, self.isolation(5)))
    }

    /// A SOCKS 4 or 4a request.
    fn read_request4(&self, message: &mut Message<'_>) -> Result<Request, Stop> {
        let refused = |reason: &str| {
            Stop::refused(Dialect::V4.status(Status::GENERAL_FAILURE), format!("SOCKS 4: {reason}"))
        };
        let len = message.rest.len();
        let endless = |stop| match stop {
            Stop::More if len >= MESSAGE_MAX => refused("the request has no end"),
            stop => stop,
        };
        let [_, command, high, low, a, b, c, d] = message.array()?;
        let (port, address) = (u16::from_be_bytes([high, low]), IpAddr::from([a, b, c, d]));
        let act = match command {
            1 => Some(Act::Connect),
            0xf0 => Some(Act::Resolve),
            2 | 0xf1 => None,
            _ => return Err(refused("the command is unknown")),
        };
        let user = message.terminated().map_err(endless)?;
        // SOCKS 4a: an invalid address, and the host name after the user name.
        let is_named = [a, b, c] == [0, 0, 0] && d != 0;
        let name = if is_named { Some(message.terminated().map_err(endless)?) } else { None };
        if address.is_unspecified() || (port == 0 && act != Some(Act::Resolve)) {
            return Err(refused("the port or the address is 0"));
        }
        if user.len() > USER_MAX || name.is_some_and(|name| name.len() > HOST_MAX) {
            return Err(refused("the user or the host name is too long"));
        }
        let act = act.ok_or_else(|| refused("only CONNECT and RESOLVE are supported"))?;
        let host = name.map_or(Some(Host::Address(address)), Host::parse);
        let host = host.ok_or_else(|| refused("the host name is malformed"))?;
        let isolation = Isolation { user: user.to_vec(), ..self.isolation(4) };
        Ok(Request::new(Dialect::V4, act, host, port, isolation))
    }
}
