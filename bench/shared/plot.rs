//! Bars, as an SVG of its own.

use std::fmt::Write as _;

const LEFT: f64 = 330.0;
const RIGHT: f64 = 560.0;
const BAR: f64 = 16.0;
const ROW: f64 = 24.0;
const HEAD: f64 = 34.0;
const TOP: f64 = 40.0;

/// A bar.
#[derive(Debug, Clone)]
pub struct Bar {
    /// What it stands for.
    pub label: String,
    /// How long it is.
    pub median: f64,
    /// Where the line over it begins.
    pub least: f64,
    /// Where the line over it ends.
    pub most: f64,
}

/// Bars that belong together.
#[derive(Debug, Clone)]
pub struct Group {
    /// What they have in common.
    pub title: String,
    /// From top to bottom.
    pub bars: Vec<Bar>,
}

/// Draws groups of horizontal bars, each group by its own scale, with a line from the least to the most.
pub fn bars(title: &str, unit: &str, groups: &[Group]) -> String {
    let rows: usize = groups.iter().map(|group| group.bars.len()).sum();
    let height = TOP + groups.len() as f64 * HEAD + rows as f64 * ROW + 10.0;
    let width = LEFT + RIGHT + 110.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"sans-serif\" \
         font-size=\"13\">\n<title>{title}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"10\" y=\"24\" font-size=\"16\" font-weight=\"bold\">{title}, {unit}</text>\n",
        title = escaped(title),
        unit = escaped(unit),
    );
    let mut y = TOP;
    for group in groups {
        let _ =
            writeln!(svg, "<text x=\"10\" y=\"{:.1}\" font-weight=\"bold\">{}</text>", y + 20.0, escaped(&group.title));
        y += HEAD;
        let full = group.bars.iter().map(|bar| bar.most).fold(f64::MIN_POSITIVE, f64::max);
        for bar in &group.bars {
            let at = |value: f64| LEFT + value / full * RIGHT;
            let middle = y + BAR / 2.0;
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
                 <rect x=\"{LEFT:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{BAR:.1}\" fill=\"#4a7ebb\"/>\
                 <path d=\"M{:.1} {middle:.1}H{:.1}\" stroke=\"#222\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                LEFT - 8.0,
                middle + 4.5,
                escaped(&bar.label),
                at(bar.median) - LEFT,
                at(bar.least),
                at(bar.most),
                at(bar.most) + 6.0,
                middle + 4.5,
                figure(bar.median),
            );
            y += ROW;
        }
    }
    svg.push_str("</svg>\n");
    svg
}

fn figure(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_bar_fills_the_scale_and_text_is_escaped() {
        let bar = |label: &str, median: f64| Bar { label: label.to_owned(), median, least: median, most: median };
        let group = Group { title: "8 clients".to_owned(), bars: vec![bar("a < b", 50.0), bar("c", 100.0)] };
        let svg = bars("keys & more", "operations/s", &[group]);
        assert!(svg.contains("a &lt; b") && svg.contains("keys &amp; more"), "{svg}");
        assert!(svg.contains("width=\"280.0\"") && svg.contains("width=\"560.0\""), "{svg}");
        assert_eq!(svg.matches("<rect").count(), 3);
    }
}
