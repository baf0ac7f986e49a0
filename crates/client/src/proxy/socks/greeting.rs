//! Messages of programs, from bytes to a request.
//!
//! Messages may be cut anywhere, and several may come at once. C tor writes the reply to a message over the one before
//! if both came at once; here each gets its own, as RFC 1928 has it. Nothing else differs.

use super::hosts::Host;
use super::{Act, Dialect, Refusal, Request, Status};
use crate::pool::Isolation;
use std::net::IpAddr;

/// A SOCKS 4 message that is this long and has no end is none: C tor's bound.
const MESSAGE_MAX: usize = 512;
/// The longest name of a user, and of a host, in SOCKS 4 and 4a.
const USER_MAX: usize = 512;
const HOST_MAX: usize = 255;
/// Methods to authenticate (RFC 1928 §3).
const NO_AUTHENTICATION: u8 = 0;
const USER_AND_PASSWORD: u8 = 2;
/// User names that begin so have a meaning for tor, of which it knows one (`socks-extensions`, proposal 351).
const TORS_OWN: &[u8] = b"<torS0X>";
const TORS_PLAIN: &[u8] = b"<torS0X>0";

/// For whoever takes the port for an HTTP proxy.
const NOT_HTTP: &str = "HTTP/1.0 501 This port speaks SOCKS, not HTTP\r\n\
    Content-Type: text/html; charset=utf-8\r\n\
    Connection: close\r\n\r\n\
    <!DOCTYPE html>\n<title>A SOCKS port, not an HTTP proxy</title>\n\
    <h1>A SOCKS port, not an HTTP proxy</h1>\n\
    <p>This is the SOCKS port of a Tor client (<code>flashflow-lab client</code>). It understands SOCKS 4, 4a and 5, and no \
    HTTP. Enter its address as the SOCKS proxy of your browser or program, not as its HTTP proxy, and let host names \
    be resolved by the proxy: with curl, <code>--socks5-hostname ADDRESS:PORT</code>.</p>\n";

/// A program that has not said yet what it wants.
pub(in crate::proxy) struct Greeting {
    /// Where it has connected from, if that is known.
    from: Option<IpAddr>,
    /// What has come of a message that has not come to its end: less than [`MESSAGE_MAX`] and two bytes.
    buffer: Vec<u8>,
    /// Methods of SOCKS 5 were agreed upon.
    is_version5: bool,
    /// The user and password are to come next.
    must_authenticate: bool,
    credentials: Option<(Vec<u8>, Vec<u8>)>,
}

/// What has become of a greeting.
pub(in crate::proxy) enum Step {
    /// More is to come.
    More,
    /// The program wants this, and has sent these bytes behind it.
    Wants(Request, Vec<u8>),
    /// It is not understood, or not carried out.
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

/// Takes a message apart.
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

    /// A byte that is a length, and the bytes that it counts.
    fn counted(&mut self) -> Result<&'a [u8], Stop> {
        let len = self.u8()?;
        self.take(len.into())
    }

    /// What comes before the next NUL, which is taken, too.
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

    /// Takes what has come; what is to be answered is put to the end of `answer`.
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

    /// Reads the next message. `None` if it is none that asks for something.
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

    /// A program gets no reply before it is known which version it speaks.
    fn failure(&self) -> Vec<u8> {
        match self.is_version5 {
            true => self.dialect5().status(Status::GENERAL_FAILURE),
            false => Vec::new(),
        }
    }

    /// Chooses a method of SOCKS 5: names and passwords before none, since they isolate streams.
    fn choose_method(&mut self, message: &mut Message<'_>) -> Result<u8, Stop> {
        let _version = message.u8()?;
        let methods = message.counted()?;
        if methods.is_empty() {
            return Err(Stop::refused(Vec::new(), "SOCKS 5: no method to authenticate is offered"));
        }
        let chosen =
            [USER_AND_PASSWORD, NO_AUTHENTICATION].into_iter().find(|it| methods.contains(it));
        let Some(method) = chosen else {
            let reason =
                "SOCKS 5: neither no authentication (0) nor user and password (2) is offered";
            return Err(Stop::refused(vec![5, 0xff], reason));
        };
        self.is_version5 = true;
        self.must_authenticate = method == USER_AND_PASSWORD;
        Ok(method)
    }

    /// The user and password of RFC 1929. Any will do, also empty ones.
    fn read_credentials(&mut self, message: &mut Message<'_>) -> Result<(), Stop> {
        let refused = |reason| Stop::refused(self.failure(), reason);
        if message.u8()? != 1 {
            return Err(refused(
                "SOCKS 5: user and password were agreed upon, and something else came",
            ));
        }
        let (user, password) = (message.counted()?, message.counted()?);
        if user.starts_with(TORS_OWN) && user != TORS_PLAIN {
            let reason = "SOCKS 5: of user names that begin with <torS0X> only <torS0X>0 is known";
            return Err(refused(reason));
        }
        if !self.is_version5 {
            return Err(refused("SOCKS 5: user and password came before the methods"));
        }
        self.credentials = Some((user.to_vec(), password.to_vec()));
        Ok(())
    }

    fn isolation(&self, version: u8) -> Isolation {
        let (user, password) = self.credentials.clone().unwrap_or_default();
        Isolation { version, from: self.from, user, password }
    }

    /// The request of SOCKS 5 (RFC 1928 §4). Bytes that cannot be are refused as soon as they come.
    fn read_request5(&self, message: &mut Message<'_>) -> Result<Request, Stop> {
        // C tor's parser knows no IPv6 reply.
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
            let reason = "SOCKS 5: RESOLVE_PTR is for addresses, and came with something else";
            return Err(refused(Status::ADDRESS_TYPE_NOT_SUPPORTED, reason.to_owned()));
        }
        let host = host.ok_or_else(|| failed("SOCKS 5: the host name is malformed".to_owned()))?;
        Ok(Request::new(self.dialect5(), act, host, port, self.isolation(5)))
    }

    /// The request of SOCKS 4 and 4a.
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
        // SOCKS 4a: an impossible address, and the name behind the user's.
        let is_named = [a, b, c] == [0, 0, 0] && d != 0;
        let name = if is_named { Some(message.terminated().map_err(endless)?) } else { None };
        if address.is_unspecified() || (port == 0 && act != Some(Act::Resolve)) {
            return Err(refused("the port or the address is 0"));
        }
        if user.len() > USER_MAX || name.is_some_and(|it| it.len() > HOST_MAX) {
            return Err(refused("the user or the host name is too long"));
        }
        let act = act.ok_or_else(|| refused("only CONNECT and RESOLVE are supported"))?;
        let host = name.map_or(Some(Host::Address(address)), Host::parse);
        let host = host.ok_or_else(|| refused("the host name is malformed"))?;
        let isolation = Isolation { user: user.to_vec(), ..self.isolation(4) };
        Ok(Request::new(Dialect::V4, act, host, port, isolation))
    }
}
