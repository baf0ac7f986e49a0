//! The objects of a dataset.

use super::super::digests::FileLine;
use super::manifest::{Manifest, Root};
use super::name::RemoteName;
use super::problem::{is_missing, storage_error};
use crate::error::ArchiveError;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::path::Path as Key;
use object_store::{
    BackoffConfig, ClientConfigKey, Error as StoreError, ObjectStore, ObjectStoreExt as _, PutMode,
    PutOptions, RetryConfig, UpdateVersion,
};
use sha2::{Digest as _, Sha256};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

/// Maximum size of a manifest in bytes: a million lines.
const MANIFEST_MAX: u64 = 256 << 20;
/// The name of the object that is replaced.
const ROOT: &str = "dataset.json";
/// Maximum size of that object in bytes.
const ROOT_MAX: u64 = 1 << 16;

/// A request is repeated for about 20 seconds: longer than a server restarts, and not so long that a wrong address seems to be a slow one. The
/// default backoff ends after one or two seconds.
fn retries() -> RetryConfig {
    let backoff = BackoffConfig {
        init_backoff: Duration::from_millis(500),
        max_backoff: Duration::from_secs(15),
        base: 3.0,
    };
    RetryConfig { backoff, max_retries: 6, ..RetryConfig::default() }
}

/// The objects of a dataset.
#[derive(Debug)]
pub(super) struct Storage {
    pub(super) name: RemoteName,
    endpoint: String,
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) runtime: Runtime,
}

/// A state of a dataset.
#[derive(Debug)]
pub(super) struct State {
    pub(super) manifest: Manifest,
    /// The version of `dataset.json`.
    version: UpdateVersion,
}

impl Storage {
    /// Reads the configuration from the variables AWS_….
    pub(super) fn from_environment(name: &RemoteName) -> Result<Self, ArchiveError> {
        let wrong = |problem: String| ArchiveError::Storage { place: name.to_string(), problem };
        let mut builder =
            AmazonS3Builder::from_env().with_bucket_name(&name.bucket).with_retry(retries());
        // The default of 30 s is for the whole body of an object.
        for (variable, key, time) in [
            ("AWS_TIMEOUT", ClientConfigKey::Timeout, "1 hour"),
            ("AWS_READ_TIMEOUT", ClientConfigKey::ReadTimeout, "2 minutes"),
        ] {
            if std::env::var_os(variable).is_none() {
                builder = builder.with_config(AmazonS3ConfigKey::Client(key), time);
            }
        }
        let value = |key| builder.get_config_value(&key);
        let endpoint = value(AmazonS3ConfigKey::S3Endpoint)
            .or_else(|| value(AmazonS3ConfigKey::Endpoint))
            .unwrap_or_default();
        let is_http_allowed =
            value(AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp)).as_deref() == Some("true");
        if endpoint.starts_with("http://") && !is_http_allowed {
            return Err(wrong(format!(
                "AWS_ENDPOINT_URL is {endpoint}, which is not encrypted: use https://, or set AWS_ALLOW_HTTP=true if you trust the network"
            )));
        }
        let store = builder
            .build()
            .map_err(|error| wrong(format!("the configuration in AWS_… is invalid: {error}")))?;
        Self::new(name, endpoint, Arc::new(store))
    }

    pub(super) fn new(
        name: &RemoteName,
        endpoint: String,
        store: Arc<dyn ObjectStore>,
    ) -> Result<Self, ArchiveError> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime
            .map_err(ArchiveError::file("start threads for", Path::new(&name.to_string())))?;
        Ok(Self { name: name.clone(), endpoint, store, runtime })
    }

    /// The URL of the server, or nothing for that of AWS.
    pub(super) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// An error of the dataset as a whole.
    pub(super) fn error(&self, problem: String) -> ArchiveError {
        ArchiveError::Storage { place: self.name.to_string(), problem }
    }

    pub(super) fn failed(&self, key: &Key) -> impl Fn(StoreError) -> ArchiveError {
        move |error| storage_error(&self.name, key, &error)
    }

    pub(super) fn damaged(&self, key: &Key, problem: String) -> ArchiveError {
        ArchiveError::Storage { place: self.name.url(key), problem }
    }

    fn manifest_key(&self, sha256: &str) -> Key {
        self.name.key("manifests", &format!("{sha256}.jsonl"))
    }

    pub(super) fn file_key(&self, file: &FileLine) -> Key {
        self.name.key("objects", &format!("{}.parquet", file.sha256))
    }

    /// The error of a file whose object does not exist.
    pub(super) fn missing(&self, file: &FileLine) -> ArchiveError {
        let problem = format!(
            "the object of {} is missing in the storage; import the sources of its month again with --again",
            file.file
        );
        self.damaged(&self.file_key(file), problem)
    }

    /// The current state, or nothing if there is no dataset.
    pub(super) fn state(&self) -> Result<Option<State>, ArchiveError> {
        self.runtime.block_on(async {
            let key = self.name.key("", ROOT);
            let found = match self.store.get(&key).await {
                Err(error) if is_missing(&error) => return Ok(None),
                found => found.map_err(self.failed(&key))?,
            };
            let meta = &found.meta;
            let version =
                UpdateVersion { e_tag: meta.e_tag.clone(), version: meta.version.clone() };
            if meta.size > ROOT_MAX {
                return Err(self.damaged(&key, "the object is damaged: it is too large".to_owned()));
            }
            let text = found.bytes().await.map_err(self.failed(&key))?;
            let root = Root::parse(&text).map_err(|problem| self.damaged(&key, problem))?;
            let manifest = self.manifest(&root).await?;
            Ok(Some(State { manifest, version }))
        })
    }

    async fn manifest(&self, root: &Root) -> Result<Manifest, ArchiveError> {
        let key = self.manifest_key(&root.manifest_sha256);
        let found = self.store.get(&key).await.map_err(self.failed(&key))?;
        if found.meta.size > MANIFEST_MAX {
            return Err(self.damaged(&key, "the manifest is too large".to_owned()));
        }
        let text = found.bytes().await.map_err(self.failed(&key))?;
        if hex::encode(Sha256::digest(&text)) != root.manifest_sha256 {
            let problem = "the stored manifest is damaged: its SHA-256 is not that in its name; restore the object, or import the sources \
                           into a new dataset";
            return Err(self.damaged(&key, problem.to_owned()));
        }
        Manifest::parse(text.to_vec()).map_err(|problem| self.damaged(&key, problem))
    }

    /// Makes this manifest the current one, if `base` is still the current state. Returns false if it is not.
    pub(super) fn publish(
        &self,
        manifest: &Manifest,
        base: Option<&State>,
    ) -> Result<bool, ArchiveError> {
        let key = self.name.key("", ROOT);
        let put = self.runtime.block_on(async {
            let manifest_key = self.manifest_key(&manifest.sha256());
            let text = manifest.text.clone().into();
            self.store.put(&manifest_key, text).await.map_err(self.failed(&manifest_key))?;
            let root = serde_json::to_vec(&Root::new(manifest))
                .map_err(|error| self.error(error.to_string()))?;
            let mode = base.map_or(PutMode::Create, |base| PutMode::Update(base.version.clone()));
            let put = self.store.put_opts(&key, root.into(), PutOptions::from(mode)).await;
            Ok::<_, ArchiveError>(put)
        })?;
        let Err(error) = put else { return Ok(true) };
        // The server may have replaced the object although its answer was lost. The condition then fails when the request is repeated.
        let is_done =
            self.state().map(|state| state.is_some_and(|state| state.manifest.continues(manifest)));
        match (is_done, &error) {
            (Ok(true), _) => Ok(true),
            (Ok(false), StoreError::Precondition { .. } | StoreError::AlreadyExists { .. }) => {
                Ok(false)
            }
            _ => Err(self.failed(&key)(error)),
        }
    }
}
