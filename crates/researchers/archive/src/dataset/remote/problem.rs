//! Errors of object storage, in words that name the cause and the remedy.
//!
//! The errors of `object_store` contain the server's answer, and S3 repeats the access key in it. So only the code of the answer is shown.

use super::name::RemoteName;
use crate::error::ArchiveError;
use object_store::Error as StoreError;
use object_store::path::Path as Key;
use std::error::Error;

/// The address at which `object_store` asks for the credentials of a virtual machine if the environment has none.
const METADATA_HOST: &str = "169.254.169.254";

/// Why an object cannot be read or written.
pub(super) fn storage_error(name: &RemoteName, key: &Key, error: &StoreError) -> ArchiveError {
    ArchiveError::Storage { place: name.url(key), problem: explained(error, &error.to_string()) }
}

/// Whether the object does not exist, although its bucket does.
pub(super) fn is_missing(error: &StoreError) -> bool {
    matches!(error, StoreError::NotFound { .. }) && !error.to_string().contains("NoSuchBucket")
}

fn explained(error: &StoreError, text: &str) -> String {
    let answer = brief(error, text);
    match error {
        _ if text.contains(METADATA_HOST) => "there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or \
             AWS_SKIP_SIGNATURE=true for a public bucket (this machine has no role of its own, either)"
            .to_owned(),
        StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. } => format!(
            "the storage refuses access ({answer}): check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN and AWS_REGION, and \
             what these credentials may do in the bucket"
        ),
        StoreError::NotFound { .. } if text.contains("NoSuchBucket") => {
            "there is no such bucket: check its name, AWS_REGION and AWS_ENDPOINT_URL".to_owned()
        }
        StoreError::NotFound { .. } => "the object is missing in the storage".to_owned(),
        StoreError::NotImplemented { .. } | StoreError::NotSupported { .. } => {
            format!("the storage does not support what a dataset needs, conditional writes and ETags ({answer})")
        }
        _ => format!("the storage cannot be used ({answer}): check AWS_ENDPOINT_URL, AWS_REGION and the network, and repeat the command"),
    }
}

/// The code of the server's answer, or else the error and its cause, without the server's text.
fn brief(error: &StoreError, text: &str) -> String {
    if let Some((code, _)) =
        text.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>"))
    {
        return code.chars().filter(char::is_ascii_alphanumeric).collect();
    }
    let own = text.split('<').next().unwrap_or_default().trim_end_matches([' ', ':']);
    let mut cause: &dyn Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    let cause = cause.to_string();
    match text.contains(&cause) || cause.contains('<') {
        true => own.to_owned(),
        false => format!("{own}: {cause}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(body: &str) -> StoreError {
        let text = format!("Server returned non-2xx status code: 403 Forbidden: {body}");
        StoreError::PermissionDenied { path: "dataset.json".to_owned(), source: text.into() }
    }

    #[test]
    fn messages_have_the_code_of_the_answer_and_no_credentials() {
        let name = RemoteName::new("bucket/tor").unwrap();
        let key = name.key("", "dataset.json");
        for (body, shown) in [
            (
                "<Error><Code>InvalidAccessKeyId</Code><AWSAccessKeyId>AKIDSECRET</AWSAccessKeyId></Error>",
                "InvalidAccessKeyId",
            ),
            ("<html>AKIDSECRET</html>", "403 Forbidden)"),
        ] {
            let message = storage_error(&name, &key, &refused(body)).to_string();
            assert!(
                message.starts_with("s3://bucket/tor/dataset.json: the storage refuses access"),
                "{message}"
            );
            assert!(message.contains(shown) && !message.contains("AKIDSECRET"), "{message}");
        }
    }

    #[test]
    fn a_missing_bucket_is_not_a_missing_object() {
        let error = |text: &str| StoreError::NotFound {
            path: String::new(),
            source: text.to_owned().into(),
        };
        assert!(is_missing(&error("<Code>NoSuchKey</Code>")));
        assert!(!is_missing(&error("<Code>NoSuchBucket</Code>")));
    }
}
