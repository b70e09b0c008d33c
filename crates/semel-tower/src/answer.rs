//! The body of a first answer.

use axum::body::Body;
use bytes::Bytes;

/// The answer's body. Under the feature `failpoints` the process can be stopped when half of it was written.
#[cfg(not(feature = "failpoints"))]
pub(crate) fn body(bytes: Bytes) -> Body {
    Body::from(bytes)
}

#[cfg(feature = "failpoints")]
pub(crate) use halves::body;

#[cfg(feature = "failpoints")]
mod halves {
    use std::convert::Infallible;
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Poll, ready};

    use http_body::{Body as HttpBody, Frame, SizeHint};

    use super::{Body, Bytes};

    /// A body that passes the failpoint between its halves. Its length is known from the start, so that it is framed
    /// like any other answer.
    struct Halves {
        first: Option<Bytes>,
        pause: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
        second: Bytes,
    }

    pub(crate) fn body(mut bytes: Bytes) -> Body {
        // An empty body has no half, and one that says it goes on would be framed in another way.
        if bytes.is_empty() {
            return Body::empty();
        }
        let second = bytes.split_off(bytes.len() / 2);
        let pause: Pin<Box<dyn Future<Output = ()> + Send>> =
            Box::pin(semel::failpoint::reach(semel::failpoint::ANSWER_HALF_WRITTEN));
        Body::new(Halves { first: Some(bytes), pause: Some(pause), second })
    }

    impl HttpBody for Halves {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            if let Some(first) = self.first.take().filter(|first| !first.is_empty()) {
                return Poll::Ready(Some(Ok(Frame::data(first))));
            }
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(context));
                self.pause = None;
            }
            let second = std::mem::take(&mut self.second);
            Poll::Ready(if second.is_empty() { None } else { Some(Ok(Frame::data(second))) })
        }

        fn is_end_stream(&self) -> bool {
            self.first.is_none() && self.pause.is_none() && self.second.is_empty()
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact((self.first.as_ref().map_or(0, Bytes::len) + self.second.len()) as u64)
        }
    }

    #[cfg(test)]
    mod tests {
        #![allow(clippy::unwrap_used)]

        use http_body_util::BodyExt;

        use super::*;

        #[tokio::test]
        async fn a_body_in_two_halves_is_the_same_body() {
            for length in 0..5 {
                let bytes = Bytes::from_static(&b"abcde"[..length]);
                let body = body(bytes.clone());
                assert_eq!(body.size_hint().exact(), Some(length as u64));
                assert_eq!(body.collect().await.unwrap().to_bytes(), bytes);
            }
        }
    }
}
