//! A strict check of the text format, for tests. It is stricter than Prometheus: it also refuses what Prometheus accepts
//! and then shows wrongly.

use std::collections::BTreeSet;

/// Checks the whole text of a process's metrics.
///
/// # Errors
/// The first line that breaks a rule, and the rule.
pub fn check(text: &str) -> Result<(), String> {
    if !text.ends_with('\n') {
        return Err("the text does not end with a line end".to_owned());
    }
    let mut names = BTreeSet::new();
    let mut lines = text.lines().peekable();
    while let Some(help) = lines.next() {
        let (name, kind) = head(help, lines.next().unwrap_or_default())?;
        let mut samples = Vec::new();
        while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
            samples.push(Sample::read(line).ok_or_else(|| refused(line, "no sample"))?);
        }
        if !names.insert(name) {
            return Err(refused(help, "the family comes twice"));
        }
        family(name, kind, &samples).map_err(|rule| refused(help, rule))?;
    }
    Ok(())
}

fn refused(line: &str, rule: &str) -> String {
    format!("{rule}: {line}")
}

/// Reads the two lines before the samples of a family: its name and its type.
fn head<'a>(help: &'a str, kind: &'a str) -> Result<(&'a str, &'a str), String> {
    let (name, words) = help
        .strip_prefix("# HELP ")
        .and_then(|rest| rest.split_once(' '))
        .ok_or_else(|| refused(help, "no help where a family begins"))?;
    let kind = kind
        .strip_prefix("# TYPE ")
        .and_then(|rest| rest.strip_prefix(name)?.strip_prefix(' '))
        .ok_or_else(|| refused(help, "no type after the help"))?;
    if !is_name(name) || words.is_empty() {
        return Err(refused(help, "no name, or no help"));
    }
    let is_counted = name.ends_with("_total") && !name.ends_with("_total_total");
    if is_counted != (kind == "counter") {
        return Err(refused(help, "counters end in _total once, others never"));
    }
    Ok((name, kind))
}

fn is_name(text: &str) -> bool {
    let is_letter = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'_';
    text.as_bytes().first().is_some_and(is_letter)
        && text
            .bytes()
            .all(|byte| is_letter(&byte) || byte.is_ascii_digit())
}

/// A line with a value: name, labels and number.
struct Sample<'a> {
    name: &'a str,
    labels: Vec<(&'a str, String)>,
    value: f64,
}

impl<'a> Sample<'a> {
    /// Parses a line; `None` if it is not a sample.
    fn read(line: &'a str) -> Option<Self> {
        let end = line.find(['{', ' '])?;
        let (name, mut rest) = line.split_at(end);
        let mut labels = Vec::new();
        if let Some(mut inside) = rest.strip_prefix('{') {
            loop {
                let (label, after) = inside.split_once("=\"")?;
                let (value, after) = label_value(after)?;
                labels.push((label, value));
                match after.strip_prefix(',') {
                    Some(next) => inside = next,
                    None => break rest = after.strip_prefix('}')?,
                }
            }
        }
        let value = number(rest.strip_prefix(' ')?)?;
        let names: BTreeSet<_> = labels.iter().map(|(label, _)| label).collect();
        let is_sound = is_name(name)
            && names.len() == labels.len()
            && names
                .iter()
                .all(|label| is_name(label) && !label.starts_with("__"));
        is_sound.then_some(Self {
            name,
            labels,
            value,
        })
    }

    /// Returns the labels without one, and the value of that one.
    fn without(&self, name: &str) -> (Vec<&(&'a str, String)>, Option<&str>) {
        let others = self.labels.iter().filter(|(label, _)| *label != name);
        let own = self.labels.iter().find(|(label, _)| *label == name);
        (others.collect(), own.map(|(_, value)| value.as_str()))
    }
}

/// Reads a label's value up to its closing quote; returns the value and what follows. There are three escapes.
fn label_value(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((index, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[index + 1..])),
            '\\' => value.push(match characters.next()?.1 {
                'n' => '\n',
                escaped @ ('\\' | '"') => escaped,
                _ => return None,
            }),
            control if control.is_control() => return None,
            other => value.push(other),
        }
    }
    None
}

fn number(text: &str) -> Option<f64> {
    match text {
        "+Inf" => Some(f64::INFINITY),
        _ => text.parse().ok().filter(|value: &f64| value.is_finite()),
    }
}

/// Checks the samples of one family.
fn family(name: &str, kind: &str, samples: &[Sample<'_>]) -> Result<(), &'static str> {
    if samples.is_empty() {
        return Err("a family without samples");
    }
    let all = samples.iter().map(|sample| (sample.name, &sample.labels));
    if all.collect::<BTreeSet<_>>().len() < samples.len() {
        return Err("a series comes twice");
    }
    match kind {
        "counter" | "gauge" => {
            if samples.iter().any(|sample| sample.name != name) {
                return Err("a sample of another name");
            }
            if kind == "counter" && samples.iter().any(|sample| sample.value < 0.0) {
                return Err("a counter below 0");
            }
            Ok(())
        }
        "histogram" => {
            let mut rest = samples;
            while !rest.is_empty() {
                rest = histogram(name, rest)?;
            }
            Ok(())
        }
        "summary" => match samples {
            [sum, count]
                if is_part(sum, name, "_sum")
                    && is_part(count, name, "_count")
                    && sum.labels == count.labels =>
            {
                Ok(())
            }
            _ => Err("a summary is its sum and its count"),
        },
        _ => Err("an unknown type"),
    }
}

fn is_part(sample: &Sample<'_>, name: &str, part: &str) -> bool {
    sample.name.strip_prefix(name) == Some(part)
}

/// Checks the first histogram of a family, and returns the samples after it.
fn histogram<'a, 'b>(
    name: &str,
    samples: &'a [Sample<'b>],
) -> Result<&'a [Sample<'b>], &'static str> {
    let buckets = samples
        .iter()
        .position(|sample| !is_part(sample, name, "_bucket"))
        .ok_or("a histogram without its sum")?;
    let (buckets, rest) = samples.split_at(buckets);
    let [sum, count, rest @ ..] = rest else {
        return Err("a histogram without its count");
    };
    if !is_part(sum, name, "_sum") || !is_part(count, name, "_count") {
        return Err("after its buckets a histogram has its sum and its count");
    }
    let (labels, _) = count.without("le");
    let mut last = (f64::NEG_INFINITY, 0.0);
    for bucket in buckets {
        let (others, bound) = bucket.without("le");
        let bound = bound.and_then(number).ok_or("a bucket without a bound")?;
        if bound <= last.0 || bucket.value < last.1 {
            return Err("bounds rise, and counts of buckets are cumulative");
        }
        if others != labels {
            return Err("the labels of a bucket differ from those of the count");
        }
        last = (bound, bucket.value);
    }
    let is_whole = last.0.is_infinite() && (last.1 - count.value).abs() < 0.5;
    if !is_whole || sum.labels != count.labels {
        return Err("the last bucket is +Inf and holds the count");
    }
    Ok(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(samples: &str, kind: &str) -> String {
        let text = format!("# HELP a_x Words.\n# TYPE a_x {kind}\n{samples}");
        check(&text).expect_err(samples)
    }

    #[test]
    fn what_prometheus_would_misread_is_refused() {
        for (samples, kind, rule) in [
            ("", "gauge", "without samples"),
            ("a_x 1", "gauge", "line end"),
            ("a_x one\n", "gauge", "no sample"),
            ("a_x inf\n", "gauge", "no sample"),
            ("a_x 1\na_x 2\n", "gauge", "series comes twice"),
            ("a_y 1\n", "gauge", "another name"),
            ("a_x{l=\"\\t\"} 1\n", "gauge", "no sample"),
            ("a_x{l=\"\t\"} 1\n", "gauge", "no sample"),
            ("a_x{l=\"\" 1\n", "gauge", "no sample"),
            ("a_x{l=\"\",l=\"\"} 1\n", "gauge", "no sample"),
            ("a_x{1=\"\"} 1\n", "gauge", "no sample"),
            ("a_x 1\n", "counter", "_total"),
            ("a_x 1\n", "untyped", "unknown type"),
            ("a_x_sum 1\n", "summary", "sum and its count"),
            ("a_x 1\n# EOF\n", "gauge", "no help"),
            (
                "a_x 1\n# HELP a_x Words.\n# TYPE a_x gauge\na_x{l=\"\"} 1\n",
                "gauge",
                "family comes twice",
            ),
        ] {
            let fault = fault(samples, kind);
            assert!(fault.contains(rule), "{samples}: {fault}");
        }
        let doubled = check("# HELP a_total_total Words.\n# TYPE a_total_total counter\n");
        assert!(doubled.is_err_and(|fault| fault.contains("once")));
    }

    #[test]
    fn a_histogram_is_cumulative_and_whole() {
        let buckets = |second: &str| {
            format!("a_x_bucket{{le=\"1\"}} 2\na_x_bucket{{le={second}\na_x_sum 4\na_x_count 3\n")
        };
        let whole = format!(
            "# HELP a_x Words.\n# TYPE a_x histogram\n{}",
            buckets("\"+Inf\"} 3")
        );
        assert_eq!(check(&whole), Ok(()));
        for (second, rule) in [
            ("\"+Inf\"} 1", "cumulative"),
            ("\"0.5\"} 3", "bounds rise"),
            ("\"+Inf\"} 4", "holds the count"),
            ("\"2\"} 3", "holds the count"),
            ("\"+Inf\",l=\"\"} 3", "labels of a bucket"),
        ] {
            let fault = fault(&buckets(second), "histogram");
            assert!(fault.contains(rule), "{second}: {fault}");
        }
        let fault = fault("a_x_bucket{le=\"+Inf\"} 1\na_x_count 1\n", "histogram");
        assert!(fault.contains("without its count"), "{fault}");
    }
}
