//! JSON in its canonical form (RFC 8785).
//!
//! Two bodies with the same canonical form must be the same request, so whatever the form would lose is refused: a
//! duplicate member, a number that a double does not hold, half of a surrogate pair. The caller then falls back to the
//! bytes as they came.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Range;

/// How deep arrays and objects may nest. Deeper bodies are taken byte by byte, and no body exhausts the stack (I12).
const MAX_DEPTH: usize = 128;

/// The most significant digits that the shortest form of a double has.
const MAX_DIGITS: usize = 17;

/// The canonical form of `body`, or `None` where it would lose something: `body` is not UTF-8 or not JSON (RFC 8259),
/// an object has two members of one name, a string has a lone surrogate, a number's decimal value is not that of the
/// double which stands for it, or arrays and objects nest deeper than [`MAX_DEPTH`].
///
/// The body is read once from front to back. Only members that are out of order are moved, at most once for each level
/// of nesting.
pub(crate) fn json(body: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(body).ok()?;
    let mut reader = Reader { text, at: 0, out: Vec::with_capacity(body.len()) };
    reader.value(0)?;
    reader.space();
    (reader.at == text.len()).then_some(reader.out)
}

/// Reads `text` from front to back and writes the canonical form to `out`.
struct Reader<'a> {
    text: &'a str,
    at: usize,
    out: Vec<u8>,
}

/// A member of an object: its name as the object's author meant it, and where name and value stand in the output.
struct Member<'a> {
    name: Cow<'a, str>,
    written: Range<usize>,
}

impl<'a> Reader<'a> {
    fn value(&mut self, depth: usize) -> Option<()> {
        self.space();
        match self.peek()? {
            b'{' if depth < MAX_DEPTH => self.object(depth + 1),
            b'[' if depth < MAX_DEPTH => self.array(depth + 1),
            b'"' => {
                let text = self.string()?;
                write_string(&text, &mut self.out);
                Some(())
            }
            b't' => self.literal("true"),
            b'f' => self.literal("false"),
            b'n' => self.literal("null"),
            b'-' | b'0'..=b'9' => self.number(),
            _ => None,
        }
    }

    fn array(&mut self, depth: usize) -> Option<()> {
        self.copy(b'[')?;
        self.space();
        if self.peek()? == b']' {
            return self.copy(b']');
        }
        loop {
            self.value(depth)?;
            self.space();
            match self.peek()? {
                b',' => self.copy(b',')?,
                _ => return self.copy(b']'),
            }
        }
    }

    fn object(&mut self, depth: usize) -> Option<()> {
        self.copy(b'{')?;
        self.space();
        if self.peek()? == b'}' {
            return self.copy(b'}');
        }
        let mut members = Vec::new();
        loop {
            self.space();
            let begin = self.out.len();
            let name = self.string()?;
            write_string(&name, &mut self.out);
            self.space();
            self.copy(b':')?;
            self.value(depth)?;
            members.push(Member { name, written: begin..self.out.len() });
            self.space();
            match self.peek()? {
                b',' => self.copy(b',')?,
                _ => break,
            }
        }
        sort(&mut members, &mut self.out)?;
        self.copy(b'}')
    }

    /// The string that begins here, with its escapes resolved.
    fn string(&mut self) -> Option<Cow<'a, str>> {
        self.skip(b'"')?;
        let mut resolved: Option<String> = None;
        loop {
            let begin = self.at;
            while !matches!(self.peek()?, b'"' | b'\\' | 0..=0x1f) {
                self.at += 1;
            }
            // The run ends before an ASCII byte, so it ends between two characters.
            let run = self.text.get(begin..self.at)?;
            if self.peek()? == b'"' {
                self.at += 1;
                return Some(match resolved {
                    None => Cow::Borrowed(run),
                    Some(text) => Cow::Owned(text + run),
                });
            }
            self.skip(b'\\')?;
            let text = resolved.get_or_insert_default();
            text.push_str(run);
            text.push(self.escape()?);
        }
    }

    /// The character behind a backslash.
    fn escape(&mut self) -> Option<char> {
        let letter = self.peek()?;
        self.at += 1;
        Some(match letter {
            b'"' | b'\\' | b'/' => char::from(letter),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let first = self.code_unit()?;
                if let Some(character) = char::from_u32(first.into()) {
                    return Some(character);
                }
                self.skip(b'\\')?;
                self.skip(b'u')?;
                let pair = [first, self.code_unit()?];
                char::decode_utf16(pair).next()?.ok()?
            }
            _ => return None,
        })
    }

    fn code_unit(&mut self) -> Option<u16> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4)?;
        self.at += 4;
        digits.iter().try_fold(0, |unit, digit| {
            let digit = char::from(*digit).to_digit(16)?;
            Some((unit << 4) | u16::try_from(digit).ok()?)
        })
    }

    fn number(&mut self) -> Option<()> {
        let begin = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        let leading_zero = self.peek()? == b'0';
        let whole = self.digits()?;
        if leading_zero && whole > 1 {
            return None;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        let decimal = Decimal::of(self.text.get(begin..self.at)?)?;
        let double: f64 = decimal.to_string().parse().ok()?;
        if !double.is_finite() {
            return None;
        }
        let mut buffer = ryu_js::Buffer::new();
        let printed = buffer.format_finite(double);
        if Decimal::of(printed)? != decimal {
            return None;
        }
        self.out.extend_from_slice(printed.as_bytes());
        Some(())
    }

    /// Skips one digit or more and tells how many.
    fn digits(&mut self) -> Option<usize> {
        let begin = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        (self.at > begin).then_some(self.at - begin)
    }

    fn literal(&mut self, literal: &str) -> Option<()> {
        self.text.get(self.at..)?.starts_with(literal).then(|| {
            self.at += literal.len();
            self.out.extend_from_slice(literal.as_bytes());
        })
    }

    fn copy(&mut self, byte: u8) -> Option<()> {
        self.skip(byte)?;
        self.out.push(byte);
        Some(())
    }

    fn skip(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }
}

/// Puts the members at the end of `out` into the order of their names, or finds two of one name.
fn sort(members: &mut [Member<'_>], out: &mut Vec<u8>) -> Option<()> {
    if members.is_sorted_by(|a, b| in_utf16(&a.name, &b.name) == Ordering::Less) {
        return Some(());
    }
    let begin = members.first()?.written.start;
    members.sort_unstable_by(|a, b| in_utf16(&a.name, &b.name));
    if members.windows(2).any(|pair| pair[0].name == pair[1].name) {
        return None;
    }
    let unsorted = out.split_off(begin);
    for (position, member) in members.iter().enumerate() {
        if position > 0 {
            out.push(b',');
        }
        out.extend_from_slice(unsorted.get(member.written.start - begin..member.written.end - begin)?);
    }
    Some(())
}

/// Compares by UTF-16 code units, in which a character beyond the basic plane stands before U+E000.
fn in_utf16(a: &str, b: &str) -> Ordering {
    a.encode_utf16().cmp(b.encode_utf16())
}

fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            0x08 => out.extend_from_slice(b"\\b"),
            0x09 => out.extend_from_slice(b"\\t"),
            0x0a => out.extend_from_slice(b"\\n"),
            0x0c => out.extend_from_slice(b"\\f"),
            0x0d => out.extend_from_slice(b"\\r"),
            0..=0x1f => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

/// The value of a number as it is written: 0.`digits` × 10^`exponent`. Zero has no digits, no exponent and no sign.
#[derive(Debug, PartialEq, Eq)]
struct Decimal {
    negative: bool,
    digits: String,
    exponent: i64,
}

impl Decimal {
    /// The value of a number that follows the grammar, or `None` where it has more digits than any double's shortest
    /// form, or an exponent that no double comes near.
    fn of(literal: &str) -> Option<Decimal> {
        let (negative, literal) = match literal.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, literal),
        };
        let (mantissa, exponent) = literal.split_once(['e', 'E']).unwrap_or((literal, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = || whole.bytes().chain(fraction.bytes());
        let zeros = all().take_while(|digit| *digit == b'0').count();
        let width = whole.len() + fraction.len();
        if zeros == width {
            return Some(Decimal { negative: false, digits: String::new(), exponent: 0 });
        }
        let trailing = all().rev().take_while(|digit| *digit == b'0').count();
        let significant = width - zeros - trailing;
        if significant > MAX_DIGITS {
            return None;
        }
        let digits = all().skip(zeros).take(significant).map(char::from).collect();
        let point = i64::try_from(whole.len()).ok()?.checked_sub(i64::try_from(zeros).ok()?)?;
        let exponent = exponent.parse::<i64>().ok()?.checked_add(point)?;
        Some(Decimal { negative, digits, exponent })
    }
}

impl std::fmt::Display for Decimal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = if self.negative { "-" } else { "" };
        write!(f, "{sign}0.{}e{}", if self.digits.is_empty() { "0" } else { &self.digits }, self.exponent)
    }
}

#[cfg(test)]
mod tests;
