use super::Directory;
use crate::event::{RelayEvent, Renewed};
use crate::keys;
use crate::renewal::{CERTIFICATES_S, Due, Renewal};
use link::tls::TlsConfigs;
use link::{IdentityIssuer, IssueError, unix_time_s};
use onion::Duration;
use rand::Rng;
use std::sync::Arc;

/// The pause after a failed renewal, for example because of a full disk.
const FAILED_PAUSE: Duration = Duration::from_secs(600);

/// The time after a jump of the clock in which onion keys are not replaced: the clock may be set right again.
const CLOCK_SETTLES: Duration = Duration::from_secs(3600);

impl Directory {
    /// Renews keys and certificates that are due. After a failure the relay continues with the
    /// present ones.
    pub(super) fn renew(&mut self) {
        let now = self.clock.now();
        if self.failed_to_renew.is_some_and(|at| now - at < FAILED_PAUSE) {
            return;
        }
        self.failed_to_renew = None;
        if let Err(error) = self.correct_onion_key_date() {
            self.emit(RelayEvent::Trouble(error.to_string()));
        }
        while let Some(due) = self.renewal().due(unix_time_s(), self.life) {
            let done = match due {
                Due::NewOnionKey => self.change_onion_key().map_err(|error| error.to_string()),
                Due::ForgetOldOnionKey => self.forget_old_onion_key().map_err(|e| e.to_string()),
                Due::Certificates => self.renew_certificates().map_err(|error| error.to_string()),
            };
            if let Err(problem) = done {
                self.failed_to_renew = Some(now);
                self.emit(RelayEvent::Trouble(problem));
                return;
            }
        }
    }

    fn renewal(&self) -> Renewal {
        Renewal {
            onion_made: self.own.onion_made,
            has_old_onion: self.own.keys.previous_onion_secret.is_some(),
            certified: self.own.certified_at,
            has_clock_jumped: self
                .clock_jumped
                .is_some_and(|at| self.clock.now() - at < CLOCK_SETTLES),
        }
    }

    /// A key that was made while the clock was ahead would be used until it is old by that date. It counts as made now.
    fn correct_onion_key_date(&mut self) -> Result<(), keys::KeyError> {
        let unix = unix_time_s();
        // After a jump, it is not known yet which time was wrong.
        if self.own.onion_made <= unix + CLOCK_SETTLES.as_secs() || self.renewal().has_clock_jumped
        {
            return Ok(());
        }
        self.own.onion_made = unix;
        keys::set_onion_key_made(&self.settings.keys, unix)
    }

    fn change_onion_key(&mut self) -> Result<(), keys::KeyError> {
        keys::rotate_onion_key(&self.settings.keys, &mut self.own.keys, &mut self.own.rng)?;
        self.own.onion_made = unix_time_s();
        self.hand_over_onion_keys();
        // Clients learn the new key from the next consensus.
        self.schedule.discard_descriptor();
        self.emit(RelayEvent::Renewed(Renewed::OnionKey));
        Ok(())
    }

    fn forget_old_onion_key(&mut self) -> Result<(), keys::KeyError> {
        keys::forget_old_onion_key(&self.settings.keys, &mut self.own.keys)?;
        self.hand_over_onion_keys();
        Ok(())
    }

    fn hand_over_onion_keys(&mut self) {
        let identity = &mut self.own.certified.identity;
        identity.onion_secret = self.own.keys.onion_secret;
        identity.previous_onion_secret = self.own.keys.previous_onion_secret;
        let identity = Arc::new(identity.clone());
        self.engine.run(|drive| drive.node_mut().set_identity(identity));
    }

    /// Issues a new signing key, a new TLS certificate, and all other certificates.
    fn renew_certificates(&mut self) -> Result<(), IssueError> {
        let mut seed = [0; 32];
        self.own.rng.fill_bytes(&mut seed);
        let unix = unix_time_s();
        let mut issuer =
            IdentityIssuer::new(seed, unix)?.lasting(Duration::from_secs(CERTIFICATES_S));
        let certified = issuer.certify(&self.own.keys)?;
        let tls = TlsConfigs::new(&issuer)?;
        let identity = Arc::new(certified.identity.clone());
        self.own.certified = certified;
        self.own.certified_at = unix;
        self.engine.run(|drive| {
            drive.node_mut().set_identity(identity);
            drive.set_tls(tls);
        });
        // The published descriptor is signed with the previous key, which is valid for ten more
        // days.
        self.schedule.discard_descriptor();
        self.emit(RelayEvent::Renewed(Renewed::Certificates));
        Ok(())
    }
}
