//! What a receiver's answer means.

use std::time::{Duration, UNIX_EPOCH};

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};
use semel::sink;

use super::Failure;

/// Reads a status: acknowledged, no event's fault, or a refusal of this event.
///
/// All events go to one URL with the same credentials. So an answer about those (a redirect, 401, 407, 421) is no
/// event's fault: events wait until the URL is right. A redirect is never followed, for it would take a signed event to
/// a place nobody has checked. 409 is what a receiver says while it still works on an earlier delivery of the same
/// event. Other 4xx may be about the route too, but a receiver that says 404 to one event must not hold back the rest,
/// so they are refusals.
pub(super) fn judge(status: StatusCode) -> Result<(), sink::Error> {
    let code = status.as_u16();
    match code {
        200..=299 => Ok(()),
        300..=399 => Err(sink::Error::Unavailable(Failure::Redirect(code).into())),
        401 => Err(sink::Error::Unavailable(Failure::Credentials.into())),
        400..=499 if !matches!(code, 407 | 408 | 409 | 421 | 425 | 429) => {
            Err(sink::Error::Refused(Failure::Status(code).into()))
        }
        _ => Err(sink::Error::Unavailable(Failure::Status(code).into())),
    }
}

/// How long the receiver asks to be left alone, at most `limit`: `Retry-After` in seconds or as a date.
pub(super) fn pause(status: StatusCode, headers: &HeaderMap, now_ms: i64, limit: Duration) -> Option<Duration> {
    if status.is_success() || judge(status).is_ok() {
        return None;
    }
    let asked = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let asked = match asked.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let until = httpdate::parse_http_date(asked).ok()?.duration_since(UNIX_EPOCH).ok()?;
            until.saturating_sub(Duration::from_millis(u64::try_from(now_ms).unwrap_or(0)))
        }
    };
    Some(asked.min(limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_is_acknowledged_or_refused_or_tried_again() {
        for code in 100..1000 {
            let judged = judge(StatusCode::from_u16(code).expect("a status"));
            match code {
                200..=299 => assert!(judged.is_ok(), "{code}"),
                100..=399 | 401 | 407 | 408 | 409 | 421 | 425 | 429 | 500.. => {
                    assert!(matches!(judged, Err(sink::Error::Unavailable(_))), "{code}")
                }
                _ => assert!(matches!(judged, Err(sink::Error::Refused(_))), "{code}"),
            }
        }
    }

    #[test]
    fn retry_after_is_read_as_seconds_or_date_and_bounded() {
        let now_ms = 784_111_770_000;
        let read = |status: StatusCode, text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, http::HeaderValue::from_static(text));
            pause(status, &headers, now_ms, Duration::from_secs(60)).map(|pause| pause.as_secs())
        };
        let busy = StatusCode::TOO_MANY_REQUESTS;
        assert_eq!(read(busy, "7"), Some(7));
        assert_eq!(read(busy, "Sun, 06 Nov 1994 08:49:37 GMT"), Some(7));
        assert_eq!(read(busy, "Sun, 06 Nov 1994 08:00:00 GMT"), Some(0));
        assert_eq!(read(StatusCode::SERVICE_UNAVAILABLE, "100000"), Some(60));
        assert_eq!(read(busy, "18446744073709551615"), Some(60));
        assert_eq!(read(busy, "soon"), None);
        assert_eq!(read(StatusCode::OK, "7"), None);
        assert_eq!(pause(busy, &HeaderMap::new(), now_ms, Duration::from_secs(60)), None);
    }
}
