//! The control port of a server, HTTP/1.1: `GET /status` (JSON), `GET /metrics` (Prometheus text), `POST /shutdown`, and
//! faults on purpose: `POST /links` ([`LinkOrder`]), `POST /clock` ([`ClockOrder`]).
//!
//! Reading is free for whoever can reach the port. What changes state needs the configured token as
//! `Authorization: Bearer TOKEN`, unless the caller is on this machine.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{ALLOW, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::connection::Address;
use super::orders::{ClockOrder, LinkOrder};
use super::status::ServerStatus;
use crate::config::ControlToken;

/// Connections to a control port at the same time.
const CONNECTIONS_MAX: usize = 64;
/// Time a caller has to send its request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Time a caller has for the whole exchange.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(15);
/// Largest order that is read, in bytes.
const ORDER_BYTES_MAX: usize = 4 << 10;
/// Largest answer a caller of [`request`] accepts, in bytes.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// What the control port controls.
pub(crate) trait Control: 'static {
    fn status(&self) -> ServerStatus;
    fn shut_down(&self);
    /// # Errors
    /// Why it makes no sense.
    fn obey_link_order(&self, order: &LinkOrder) -> Result<(), String>;
    /// # Errors
    /// Why it makes no sense.
    fn obey_clock_order(&self, order: ClockOrder) -> Result<(), String>;
}

/// Serves the control port for as long as the node lives.
pub(crate) async fn serve(
    listener: TcpListener,
    control: Rc<impl Control>,
    token: Option<ControlToken>,
) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        // A caller without a place waits in the queue of the system: those that come and go at once leave soon.
        let Ok(place) = places.clone().acquire_owned().await else {
            return;
        };
        let Ok((stream, caller)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let (control, token) = (control.clone(), token.clone());
        tokio::task::spawn_local(async move {
            let service = service_fn(|request| {
                let answer = answer(request, caller, &*control, token.as_ref());
                async move { Ok::<_, std::convert::Infallible>(answer.await) }
            });
            let mut http = hyper::server::conn::http1::Builder::new();
            http.timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .max_buf_size(16 << 10)
                .keep_alive(false);
            // A caller that does not read its answer must not keep its place for ever. The task is not one of the
            // node's, which end with it: the answer to a shutdown is still to be written.
            match tokio::time::timeout(
                EXCHANGE_TIMEOUT,
                http.serve_connection(TokioIo::new(stream), service),
            )
            .await
            {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%caller, %error, "control connection"),
                Err(_) => tracing::debug!(%caller, "a control connection took too long"),
            }
            drop(place);
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    caller: SocketAddr,
    control: &impl Control,
    token: Option<&ControlToken>,
) -> Response<Full<Bytes>> {
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/status") => match serde_json::to_vec_pretty(&control.status()) {
            Ok(json) => respond(StatusCode::OK, "application/json", json),
            Err(error) => respond(
                StatusCode::INTERNAL_SERVER_ERROR,
                "text/plain",
                error.to_string(),
            ),
        },
        (&Method::GET, "/metrics") => respond(
            StatusCode::OK,
            "text/plain; version=0.0.4; charset=utf-8",
            metrics(&control.status()),
        ),
        (&Method::POST, "/shutdown" | "/links" | "/clock")
            if !may_change(&request, caller, token) =>
        {
            respond(
                StatusCode::FORBIDDEN,
                "text/plain",
                "from another machine this needs `Authorization: Bearer TOKEN` with the <control_token> of the server\n",
            )
        }
        (&Method::POST, "/shutdown") => {
            control.shut_down();
            respond(StatusCode::OK, "text/plain", "stopped\n")
        }
        (&Method::POST, "/links") => {
            obey(request, |order: LinkOrder| control.obey_link_order(&order)).await
        }
        (&Method::POST, "/clock") => {
            obey(request, |order: ClockOrder| control.obey_clock_order(order)).await
        }
        (_, "/shutdown" | "/links" | "/clock") => not_allowed("POST"),
        (_, "/status" | "/metrics") => not_allowed("GET"),
        _ => respond(
            StatusCode::NOT_FOUND,
            "text/plain",
            "GET /status, GET /metrics, POST /shutdown, POST /links or POST /clock\n",
        ),
    }
}

/// Reads an order and has it carried out.
async fn obey<T: DeserializeOwned>(
    request: Request<Incoming>,
    carry_out: impl FnOnce(T) -> Result<(), String>,
) -> Response<Full<Bytes>> {
    let body = Limited::new(request.into_body(), ORDER_BYTES_MAX)
        .collect()
        .await;
    let Ok(body) = body else {
        return respond(
            StatusCode::PAYLOAD_TOO_LARGE,
            "text/plain",
            format!("the body is cut short, or longer than {ORDER_BYTES_MAX} bytes\n"),
        );
    };
    let carried_out = serde_json::from_slice(&body.to_bytes())
        .map_err(|error| error.to_string())
        .and_then(carry_out);
    match carried_out {
        Ok(()) => respond(StatusCode::OK, "text/plain", "done\n"),
        Err(problem) => respond(
            StatusCode::BAD_REQUEST,
            "text/plain",
            format!("{problem}\n"),
        ),
    }
}

fn may_change(
    request: &Request<Incoming>,
    caller: SocketAddr,
    token: Option<&ControlToken>,
) -> bool {
    let offered = request
        .headers()
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer "));
    let knows_token =
        matches!((token, offered), (Some(token), Some(offered)) if token.matches(offered));
    // A web page in this machine's browser could post here too: browsers say where they come from.
    let from_browser = request.headers().contains_key("origin");
    knows_token || (caller.ip().to_canonical().is_loopback() && !from_browser)
}

fn not_allowed(instead: &'static str) -> Response<Full<Bytes>> {
    let mut response = respond(
        StatusCode::METHOD_NOT_ALLOWED,
        "text/plain",
        format!("only {instead}\n"),
    );
    response
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static(instead));
    response
}

fn respond(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ServerLabel {
    server: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LinkLabels {
    server: String,
    peer: String,
}

/// The figures of a status as Prometheus text.
fn metrics(status: &ServerStatus) -> String {
    let mut registry = Registry::with_prefix("dkvf");
    let server = ServerLabel {
        server: status.server.clone(),
    };
    let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let mut counter = |name: &str, help: &str, value: u64| {
        let family = Family::<ServerLabel, Counter>::default();
        family.get_or_create(&server).inc_by(value);
        registry.register(name, help, family);
    };
    let traffic = &status.traffic;
    counter("requests", "Requests of clients", traffic.requests);
    counter("request_bytes", "Bytes of requests", traffic.request_bytes);
    counter("replies", "Replies to clients", traffic.replies);
    counter("reply_bytes", "Bytes of replies", traffic.reply_bytes);
    counter("messages", "Messages to other servers", traffic.messages);
    counter(
        "message_bytes",
        "Bytes of messages to other servers",
        traffic.message_bytes,
    );
    counter(
        "periodic_messages",
        "Heartbeats and cut-offs to other servers",
        traffic.periodic,
    );
    counter(
        "periodic_message_bytes",
        "Bytes of heartbeats and cut-offs to other servers",
        traffic.periodic_bytes,
    );
    counter("refused", "Requests refused", status.node.refused);
    let mut gauge = |name: &str, help: &str, value: u64| {
        let family = Family::<ServerLabel, Gauge>::default();
        family.get_or_create(&server).set(signed(value));
        registry.register(name, help, family);
    };
    gauge(
        "client_connections",
        "Client connections",
        status.client_connections as u64,
    );
    gauge(
        "sessions",
        "Client sessions known",
        status.node.sessions as u64,
    );
    gauge("parked", "Messages parked", status.node.parked as u64);
    gauge("keys", "Keys stored", status.node.store.keys);
    gauge("versions", "Versions stored", status.node.store.versions);
    let mut per_link = |name: &str, help: &str, value: fn(&super::status::LinkStatus) -> u64| {
        let family = Family::<LinkLabels, Gauge>::default();
        for link in &status.links {
            let labels = LinkLabels {
                server: status.server.clone(),
                peer: link.peer.clone(),
            };
            family.get_or_create(&labels).set(signed(value(link)));
        }
        registry.register(name, help, family);
    };
    per_link("link_connected", "1 if the link is connected", |link| {
        u64::from(link.connected)
    });
    per_link(
        "link_kept_frames",
        "Frames the peer has not taken yet",
        |link| link.kept_frames,
    );
    per_link(
        "link_kept_bytes",
        "Bytes the peer has not taken yet",
        |link| link.kept_bytes,
    );
    let mut text = String::new();
    if let Err(error) = prometheus_client::encoding::prometheus_text::encode(&mut text, &registry) {
        tracing::error!(%error, "cannot encode metrics");
    }
    text
}

/// Calls a control port: `("GET", "/status")` and the like. Returns the body of a successful answer.
///
/// # Errors
/// The server cannot be reached or does not agree.
pub async fn request(
    address: &Address,
    method: &str,
    path: &str,
    token: Option<&ControlToken>,
) -> anyhow::Result<Bytes> {
    exchange(address, method, path, token, Bytes::new()).await
}

/// Gives an order to a control port: `"/links"` with a [`LinkOrder`], `"/clock"` with a [`ClockOrder`].
///
/// # Errors
/// The server cannot be reached or does not agree.
pub async fn post(
    address: &Address,
    path: &str,
    token: Option<&ControlToken>,
    order: &impl Serialize,
) -> anyhow::Result<()> {
    let body = Bytes::from(serde_json::to_vec(order)?);
    exchange(address, "POST", path, token, body).await?;
    Ok(())
}

async fn exchange(
    address: &Address,
    method: &str,
    path: &str,
    token: Option<&ControlToken>,
    body: Bytes,
) -> anyhow::Result<Bytes> {
    let call = async {
        let stream = address.connect().await?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, address.to_string());
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, format!("Bearer {}", token.reveal()));
        }
        let exchange = async {
            let response = sender.send_request(request.body(Full::new(body))?).await?;
            let status = response.status();
            let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX)
                .collect()
                .await
                .map_err(|error| anyhow::anyhow!(error))?
                .to_bytes();
            drop(sender);
            anyhow::Ok((status, body))
        };
        let (answer, _) = tokio::join!(exchange, connection);
        let (status, body) = answer?;
        if !status.is_success() {
            bail!(
                "{address} answered {status} to {method} {path}: {}",
                String::from_utf8_lossy(&body).trim()
            );
        }
        anyhow::Ok(body)
    };
    tokio::time::timeout(HEAD_TIMEOUT, call)
        .await
        .with_context(|| format!("no answer of {address} within {HEAD_TIMEOUT:?}"))?
}
