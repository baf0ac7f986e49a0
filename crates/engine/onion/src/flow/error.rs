use core::fmt;

/// Why a flow control message is refused. The circuit must be closed, with the reason "protocol violation".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowError {
    /// A SENDME that no cell waits for.
    UnexpectedSendme,
    /// The SENDME's tag is not that of the cell that it acknowledges.
    WrongTag,
    /// A SENDME version without authentication, or an unknown one.
    SendmeVersion(u8),
    /// Stream SENDMEs on a circuit with congestion control, or XON and XOFF on one without.
    WrongKind,
    /// A second XOFF without XON in between.
    RepeatedXoff,
    /// More cells than the window allows.
    WindowExceeded,
}

impl fmt::Display for FlowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnexpectedSendme => f.write_str("SENDME without cells to acknowledge"),
            Self::WrongTag => f.write_str("SENDME does not prove that its cells have arrived"),
            Self::SendmeVersion(version) => write!(f, "SENDME of version {version}"),
            Self::WrongKind => f.write_str("flow control that was not negotiated for the circuit"),
            Self::RepeatedXoff => f.write_str("XOFF on a stream that is stopped already"),
            Self::WindowExceeded => f.write_str("more cells than the window allows"),
        }
    }
}

impl core::error::Error for FlowError {}
