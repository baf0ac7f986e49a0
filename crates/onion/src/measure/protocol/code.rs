use core::fmt;

/// Why a party ends a measurement. The numbers are part of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorCode(u16);

/// Each code once: its name, its number, and what it says.
macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal;)*) => {
        impl ErrorCode {
            $($(#[$doc])* pub const $name: Self = Self($number);)*

            /// All codes that are known.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];
        }

        impl fmt::Display for ErrorCode {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match *self {
                    $(Self::$name => f.write_str($text),)*
                    Self(other) => write!(f, "unknown error {other}"),
                }
            }
        }
    };
}

codes! {
    /// `FFMeasurementsAllowed` is 0.
    NOT_ALLOWED = 1, "the relay allows no measurements";
    /// The coordinator's key is not on the relay's list, or the order's signature is not valid: a relay does not say which.
    UNKNOWN_COORDINATOR = 2, "the order's signature is not valid on this connection, or the relay does not allow this coordinator";
    /// The signature of a proof does not fit the key, the contents and this TLS session.
    BAD_SIGNATURE = 3, "the signature is not valid on this connection";
    /// The order names another relay.
    WRONG_TARGET = 4, "the order is for another relay";
    /// The order's time is over.
    EXPIRED = 5, "the order has expired";
    /// The order expires later than any measurement could end: a clock is wrong.
    TOO_FAR_AHEAD = 6, "the order expires too far in the future: compare the clocks";
    /// An order with this nonce was accepted before.
    REPLAYED = 7, "the order was used before";
    /// This coordinator has had its measurements for this period.
    QUOTA_EXCEEDED = 8, "the coordinator has used up its measurements of this period";
    /// Longer than `FFMaxMeasurementDuration` allows.
    TOO_LONG = 9, "the measurement would last longer than the relay allows";
    /// Another measurement is on.
    BUSY = 10, "the relay is being measured already";
    /// A parameter that makes no sense, such as no measurers or no seconds.
    BAD_PARAMETERS = 11, "the order's parameters make no sense";
    /// A proof for a measurement that is not on.
    NO_SUCH_MEASUREMENT = 12, "no such measurement is on";
    /// A proof by somebody whom the order does not name.
    UNKNOWN_MEASURER = 13, "the order does not name this measurer";
    /// More links than the order says.
    TOO_MANY_SOCKETS = 14, "more sockets than the order allows";
    /// A message that cannot be read.
    MALFORMED = 15, "a message cannot be read";
    /// A message that must not come here or now, or a cell that must not.
    OUT_OF_ORDER = 16, "a message came at the wrong time or from the wrong side";
    /// `FFMaxMeasurementDuration` is over.
    TIMED_OUT = 17, "the measurement has taken too long";
    /// The coordinator's link is gone, or it has called the measurement off.
    CALLED_OFF = 18, "the coordinator has called the measurement off";
    /// The measurement was cut short by another party's violation.
    VIOLATION = 19, "another party broke the rules of this measurement";
    /// Nothing to be measured came for some seconds.
    NO_TRAFFIC = 20, "no measurement traffic came for three seconds";
    /// Anything else: the text says what.
    OTHER = 255, "the measurement is impossible";
}

impl ErrorCode {
    /// The code with this number, known or not.
    #[must_use]
    pub const fn new(number: u16) -> Self {
        Self(number)
    }

    /// The number on the wire.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}
