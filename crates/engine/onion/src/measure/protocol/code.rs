use core::fmt;

/// Why a party ends a measurement. The numbers are part of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorCode(u16);

/// Each code once: its name, its number, and its text.
macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal;)*) => {
        impl ErrorCode {
            $($(#[$doc])* pub const $name: Self = Self($number);)*

            /// All known codes.
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
    /// The coordinator's key is not on the relay's list, or the order's signature is invalid: a relay does not reveal which.
    UNKNOWN_COORDINATOR = 2, "the order's signature is not valid on this connection, or the relay does not allow this coordinator";
    /// The signature of a proof does not fit the key, the contents and this TLS session.
    BAD_SIGNATURE = 3, "the signature is not valid on this connection";
    /// The order names another relay.
    WRONG_TARGET = 4, "the order is for another relay";
    /// The order has expired.
    EXPIRED = 5, "the order has expired";
    /// The order expires later than any measurement could end: a clock is wrong.
    TOO_FAR_AHEAD = 6, "the order expires too far in the future: compare the clocks";
    /// An order with this nonce was accepted before.
    REPLAYED = 7, "the order was used before";
    /// The coordinator has used up its quota for this period.
    QUOTA_EXCEEDED = 8, "the coordinator has used up its measurements of this period";
    /// Longer than `FFMaxMeasurementDuration` allows.
    TOO_LONG = 9, "the measurement would last longer than the relay allows";
    /// Another measurement is running.
    BUSY = 10, "the relay is being measured already";
    /// An invalid parameter, such as no measurers or zero seconds.
    BAD_PARAMETERS = 11, "the order's parameters are invalid";
    /// A proof for a measurement that is not running.
    NO_SUCH_MEASUREMENT = 12, "no such measurement is running";
    /// A proof by a measurer that the order does not name.
    UNKNOWN_MEASURER = 13, "the order does not name this measurer";
    /// More links than the order allows.
    TOO_MANY_SOCKETS = 14, "more sockets than the order allows";
    /// A malformed message.
    MALFORMED = 15, "a message is malformed";
    /// A message or cell that is not allowed on this link or at this time.
    OUT_OF_ORDER = 16, "a message arrived at the wrong time or from the wrong side";
    /// `FFMaxMeasurementDuration` has passed.
    TIMED_OUT = 17, "the measurement has taken too long";
    /// The coordinator's link has closed, or it has cancelled the measurement.
    CALLED_OFF = 18, "the coordinator has cancelled the measurement";
    /// The measurement was cut short by another party's violation.
    VIOLATION = 19, "another party broke the rules of this measurement";
    /// No measurement traffic arrived for some seconds.
    NO_TRAFFIC = 20, "no measurement traffic arrived for three seconds";
    /// Anything else: see the text.
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
