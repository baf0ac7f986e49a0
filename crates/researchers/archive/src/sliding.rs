//! Sliding windows of several lengths over one relay's irregular events.
//!
//! Formulas keep the paper's symbols: *A(r,t)* is the advertised bandwidth of the newest descriptor published at or before *t*;
//! *A(r,t,p)* are the values published in *(t−p, t]*, and where there is none the value in force; *C(r,t,p)* is their maximum
//! (equation 1), *RSD* their standard deviation over their mean (equation 7). *W(r,t,p)* are the shares of the consensus weight in the
//! views of *(t−p, t]*.
//!
//! A window costs amortised constant time per value: its maximum is the head of a monotonic queue, and its deviation comes from sums
//! of integers, which do not drift over years of additions and removals.

use std::collections::VecDeque;

/// A share of 1 as an integer. Squares of shares, up to 2²⁰ of them, fit 128 bits.
const ONE: f64 = (1_u64 << 54) as f64;

/// The values of a window at one view.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Windowed {
    /// *C(r,t,p)*, byte/s.
    pub capacity_byte_per_s: Option<u32>,
    /// *RSD(A(r,t,p))*; none if all values are zero.
    pub advertised_rsd: Option<f64>,
    /// *RSD(W(r,t,p))*; none if there is no weight, or all are zero.
    pub weight_rsd: Option<f64>,
}

/// A window, and which of its values to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowSpec {
    /// *p*, in seconds.
    pub length_s: i64,
    /// *C(r,t,p)*.
    pub has_capacity: bool,
    /// *RSD(A(r,t,p))*.
    pub has_advertised_rsd: bool,
    /// *RSD(W(r,t,p))*.
    pub has_weight_rsd: bool,
}

/// The windows of one relay. Events must be in order of time; at equal times, descriptors precede the view.
#[derive(Clone, Debug)]
pub struct Sliding {
    in_force: Option<u32>,
    windows: Vec<Window>,
}

#[derive(Clone, Debug)]
struct Window {
    spec: WindowSpec,
    /// Candidates for the maximum: times ascending, values descending.
    largest: VecDeque<(i64, u32)>,
    advertised: Moments<u32>,
    weights: Moments<u64>,
}

/// The values of a window, and their sums.
#[derive(Clone, Debug, Default)]
struct Moments<T> {
    values: VecDeque<(i64, T)>,
    sum: u128,
    squares: u128,
    /// The cached deviation, until a value is added or removed: descriptors are fewer than views.
    rsd: Option<Option<f64>>,
}

impl Sliding {
    /// Creates empty windows.
    #[must_use]
    pub fn new(specs: &[WindowSpec]) -> Self {
        let window = |spec: &WindowSpec| Window {
            spec: *spec,
            largest: VecDeque::new(),
            advertised: Moments::default(),
            weights: Moments::default(),
        };
        Self { in_force: None, windows: specs.iter().map(window).collect() }
    }

    /// Resets the windows for another relay.
    pub fn clear(&mut self) {
        self.in_force = None;
        for window in &mut self.windows {
            window.largest.clear();
            window.advertised.clear();
            window.weights.clear();
        }
    }

    /// Handles a published descriptor.
    pub fn published(&mut self, time_s: i64, advertised_byte_per_s: u32) {
        self.in_force = Some(advertised_byte_per_s);
        for window in &mut self.windows {
            window.expire(time_s);
            if window.spec.has_capacity {
                while window
                    .largest
                    .back()
                    .is_some_and(|(_, value)| *value <= advertised_byte_per_s)
                {
                    window.largest.pop_back();
                }
                window.largest.push_back((time_s, advertised_byte_per_s));
            }
            if window.spec.has_advertised_rsd {
                window.advertised.push(time_s, advertised_byte_per_s);
            }
        }
    }

    /// Handles a view that lists the relay with this share of the weight. Calls `found` for each window, in order. Returns *A(r,t)*.
    pub fn listed(
        &mut self,
        time_s: i64,
        share: Option<f64>,
        mut found: impl FnMut(usize, Windowed),
    ) -> Option<u32> {
        for (index, window) in self.windows.iter_mut().enumerate() {
            window.expire(time_s);
            if let Some(share) = share.filter(|_| window.spec.has_weight_rsd) {
                #[expect(clippy::cast_possible_truncation, reason = "a share lies in 0..=1")]
                window.weights.push(time_s, (share.clamp(0.0, 1.0) * ONE) as u64);
            }
            let largest = window.largest.front().map(|(_, value)| *value);
            found(
                index,
                Windowed {
                    capacity_byte_per_s: largest.or(self.in_force),
                    advertised_rsd: match (window.advertised.rsd(), self.in_force) {
                        (None, Some(value)) if value > 0 && window.advertised.values.is_empty() => {
                            Some(0.0)
                        }
                        (rsd, _) => rsd,
                    },
                    weight_rsd: window.weights.rsd(),
                },
            );
        }
        self.in_force
    }
}

impl Window {
    /// Removes values that have left the window.
    fn expire(&mut self, time_s: i64) {
        let is_old = |time: i64| time <= time_s - self.spec.length_s;
        while self.largest.front().is_some_and(|(time, _)| is_old(*time)) {
            self.largest.pop_front();
        }
        self.advertised.expire(is_old);
        self.weights.expire(is_old);
    }
}

impl<T: Copy + Into<u64>> Moments<T> {
    fn clear(&mut self) {
        self.values.clear();
        (self.sum, self.squares, self.rsd) = (0, 0, None);
    }

    fn push(&mut self, time_s: i64, value: T) {
        self.values.push_back((time_s, value));
        self.rsd = None;
        let value = u128::from(value.into());
        self.sum += value;
        self.squares += value * value;
    }

    fn expire(&mut self, is_old: impl Fn(i64) -> bool) {
        while let Some((_, value)) = self.values.front().copied().filter(|(time, _)| is_old(*time))
        {
            self.values.pop_front();
            self.rsd = None;
            let value = u128::from(value.into());
            self.sum -= value;
            self.squares -= value * value;
        }
    }

    /// Population standard deviation over mean.
    fn rsd(&mut self) -> Option<f64> {
        if let Some(known) = self.rsd {
            return known;
        }
        let rsd = self.deviation();
        self.rsd = Some(rsd);
        rsd
    }

    fn deviation(&self) -> Option<f64> {
        if self.sum == 0 {
            return None;
        }
        let (count, sum, squares) =
            (self.values.len() as f64, self.sum as f64, self.squares as f64);
        // (Σv²/n)/(Σv/n)² − 1. If the quotient is near 1, floats lose precision; then the difference is computed in integers, if they
        // do not overflow.
        let n = self.values.len() as u128;
        let exact = n.checked_mul(self.squares).zip(self.sum.checked_mul(self.sum));
        let variance = match exact {
            Some((above, square)) => above.saturating_sub(square) as f64 / (sum * sum),
            None => (count * squares / (sum * sum) - 1.0).max(0.0),
        };
        Some(variance.sqrt())
    }
}

#[cfg(test)]
mod tests;
