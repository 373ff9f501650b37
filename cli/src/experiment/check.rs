//! Checks of a specification before anything is run.

use std::collections::{BTreeMap, BTreeSet};

use super::draw::is_expression;
use super::expression;
use super::grid::{cells, is_list};
use super::metric::{Field, Metric};
use super::quantity::Quantity;
use super::spec::{Axis, Claim, Column, Kind, PictureSpec, Spec, TableSpec, Text, Values};
use crate::job::{find, unknown};

/// More runs than are practical: only a typing error asks for as many.
const MOST_RUNS: u64 = 1_000_000;

/// Most characters of a text in a claim.
const LONGEST: usize = 10_000;

/// Returns the first error of a specification.
pub(super) fn check(spec: &Spec) -> Result<(), String> {
    if !is_file_name(&spec.name) {
        return Err(format!("name = {:?}: use letters, digits, - and _", spec.name));
    }
    if spec.reps == 0 {
        return Err("reps = 0: there must be at least one".into());
    }
    for key in spec.job.keys() {
        is_setting(key).map_err(|why| format!("[job] {why}"))?;
    }
    axes(spec)?;
    let sizes = spec.axis.iter().map(|axis| axis.values.len() as u64);
    let runs = sizes.fold(u64::from(spec.reps), u64::saturating_mul);
    if runs > MOST_RUNS {
        return Err(format!("these are {runs} runs, at most {MOST_RUNS} are allowed"));
    }
    for values in &spec.exclude {
        let mut axes = values.iter();
        axes.try_for_each(|(axis, Values(values))| has(spec, axis, values))
            .map_err(|why| format!("[[exclude]] {why}"))?;
    }
    if cells(spec).is_empty() {
        return Err("[[exclude]] leaves no cell".into());
    }
    let mut files = BTreeSet::new();
    for picture in &spec.picture {
        check_picture(spec, picture).map_err(|why| format!("picture {:?}: {why}", picture.file))?;
        if !files.insert(&picture.file) {
            return Err(format!("there are two pictures called {:?}", picture.file));
        }
    }
    let mut files = BTreeSet::new();
    for table in &spec.table {
        check_table(spec, table).map_err(|why| format!("table {:?}: {why}", table.file))?;
        if !files.insert(&table.file) {
            return Err(format!("there are two tables called {:?}", table.file));
        }
    }
    for (number, claim) in (1..).zip(&spec.claim) {
        check_lengths(claim).map_err(|why| format!("claim {number}: {why}"))?;
    }
    for (name, text) in &spec.define {
        check_length("its text", text).map_err(|why| format!("[define] {name}: {why}"))?;
        if ["measured", "expected"].contains(&name.as_str()) {
            return Err(format!("[define] {name}: this name is that of each claim's own value"));
        }
        names(spec, text, &[], &[]).map_err(|why| format!("[define] {name}: {why}"))?;
    }
    definitions(&spec.define)?;
    for claim in &spec.claim {
        check_claim(spec, claim).map_err(|why| format!("claim {:?}: {why}", claim.text))?;
    }
    Ok(())
}

/// Error message for an unknown axis.
pub(super) fn no_axis(spec: &Spec, name: &str) -> String {
    let names: Vec<&str> = spec.axis.iter().map(|axis| axis.name.as_str()).collect();
    format!("there is no axis {name:?}, but {}", listed(&names))
}

/// Error message for an unknown value of an axis.
pub(super) fn no_value(axis: &Axis, value: &str) -> String {
    let values: Vec<&str> = axis.values.iter().map(|Text(text)| text.as_str()).collect();
    format!("{} never is {value:?}, but {}", axis.name, listed(&values))
}

fn listed(names: &[&str]) -> String {
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

fn is_file_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    !name.is_empty() && name.len() <= 100 && name.chars().all(allowed)
}

/// Fails if there is no such setting.
pub(super) fn is_setting(key: &str) -> Result<(), String> {
    find(key).map(|_setting| ()).ok_or_else(|| unknown(key))
}

fn axes(spec: &Spec) -> Result<(), String> {
    let mut names = BTreeSet::new();
    let mut set = BTreeMap::new();
    for axis in &spec.axis {
        let place = |why: String| format!("axis {:?}: {why}", axis.name);
        if !names.insert(&axis.name) {
            return Err(place("there are two of this name".into()));
        }
        if axis.name.contains([',', '=', ';', '{', '}', ' ']) || axis.name.is_empty() {
            return Err(place("use a name without spaces and , = ; { }".into()));
        }
        if axis.values.is_empty() {
            return Err(place("it has no values".into()));
        }
        let distinct: BTreeSet<_> = axis.values.iter().collect();
        if distinct.len() < axis.values.len() {
            return Err(place("a value comes twice".into()));
        }
        if !axis.labels.is_empty() && axis.labels.len() != axis.values.len() {
            let (labels, values) = (axis.labels.len(), axis.values.len());
            return Err(place(format!("{values} values have {labels} labels")));
        }
        if axis.set.is_empty() && axis.settings.is_empty() {
            is_setting(&axis.name).map_err(|why| {
                place(format!("{why} (an axis of another name says which settings it makes: set)"))
            })?;
        }
        for (key, Text(pattern)) in &axis.set {
            is_setting(key).map_err(place)?;
            if !pattern.contains("{}") {
                return Err(place(format!("set.{key} = {pattern:?} has no {{}} for the value")));
            }
        }
        settings(axis).map_err(place)?;
        for key in axis.keys().into_iter().filter(|key| !is_list(key)) {
            if let Some(other) = set.insert(key, &axis.name) {
                return Err(place(format!("axis {other:?} makes the setting {key} already")));
            }
            if spec.job.contains_key(key) && axis.made_by_all().contains(key) {
                return Err(place(format!("it makes the setting {key}, and [job] too")));
            }
        }
    }
    Ok(())
}

/// Checks the settings that an axis lists by value.
fn settings(axis: &Axis) -> Result<(), String> {
    if axis.settings.is_empty() {
        return Ok(());
    }
    for (value, settings) in &axis.settings {
        if axis.position(value).is_none() {
            return Err(format!("settings: {}", no_value(axis, value)));
        }
        for key in settings.keys() {
            is_setting(key).map_err(|why| format!("settings.{value}: {why}"))?;
            if axis.set.contains_key(key) {
                return Err(format!("settings.{value}: set makes the setting {key} already"));
            }
        }
    }
    match axis.values.iter().find(|Text(value)| !axis.settings.contains_key(value)) {
        Some(Text(value)) => Err(format!("settings: it has none of {value:?}; {{}} says so")),
        None => Ok(()),
    }
}

/// Checks that the axis exists and has these values.
fn has<'a>(
    spec: &Spec,
    name: &str,
    values: impl IntoIterator<Item = &'a Text>,
) -> Result<(), String> {
    let axis = spec.axis(name).ok_or_else(|| no_axis(spec, name))?;
    let mut values = values.into_iter().map(|Text(value)| value);
    values.try_for_each(|value| axis.position(value).map(drop).ok_or_else(|| no_value(axis, value)))
}

/// Checks the settings that leave out parts of a picture.
fn check_extent(spec: &Spec, picture: &PictureSpec) -> Result<(), String> {
    if picture.from.is_some() && picture.kind == Kind::Heatmap {
        return Err("a heat map has no `from`".into());
    }
    for (axis, Values(values)) in &picture.among {
        has(spec, axis, values)?;
        if values.is_empty() || picture.kind == Kind::Heatmap {
            return Err("among names some values of an axis, and not for heat maps".into());
        }
    }
    if picture.to.is_some() && picture.kind != Kind::Usage {
        return Err("to is for usage".into());
    }
    Ok(())
}

fn check_usage(picture: &PictureSpec) -> Result<(), String> {
    if picture.x != "time_s" || !["up", "down"].contains(&picture.y.as_str()) {
        return Err("usage shows up or down against time_s".into());
    }
    let (from, to) = (picture.from.unwrap_or(0.0), picture.to.unwrap_or(f64::NAN));
    if !(from >= 0.0 && to > from && to.is_finite()) {
        return Err("usage wants a time `to` up to which it is shown, later than `from`".into());
    }
    Ok(())
}

fn check_picture(spec: &Spec, picture: &PictureSpec) -> Result<(), String> {
    if !is_file_name(&picture.file) {
        return Err("use letters, digits, - and _ in its name".into());
    }
    picture.only.iter().try_for_each(|(axis, value)| has(spec, axis, [value]))?;
    for label in [&picture.x_label, &picture.y_label, &picture.value_label] {
        for expression in super::claims::expressions(label) {
            names(spec, expression, &[], &[])?;
        }
    }
    let mut open = spec.open_axes();
    open.retain(|axis| !picture.only.contains_key(*axis));
    for axis in picture.lines.iter().chain(&picture.each) {
        if spec.axis(axis).is_none() {
            return Err(no_axis(spec, axis));
        }
        open.remove(axis.as_str());
    }
    check_extent(spec, picture)?;
    let metric = |text: &str| text.parse::<Metric>()?.setting().map_or(Ok(()), is_setting);
    match picture.kind {
        Kind::Curve => {
            let (x, y): (Field, Field) = (picture.x.parse()?, picture.y.parse()?);
            if !x.is_progress() || y.is_progress() {
                return Err("a curve shows a metric such as accuracy, or loss, against epoch, \
                            time_s, samples or updates"
                    .into());
            }
        }
        Kind::Usage => check_usage(picture)?,
        Kind::Line => {
            metric(&picture.y)?;
            if spec.axis(&picture.x).is_some() {
                open.remove(picture.x.as_str());
            } else {
                // Then each cell of a line is a separate point.
                metric(&picture.x)?;
                open.clear();
            }
        }
        Kind::Bar => {
            let own = [&picture.x].into_iter().chain(&picture.each).chain(&picture.lines);
            let own: Vec<String> = own.chain(picture.only.keys()).cloned().collect();
            if is_expression(&picture.y) {
                names(spec, &picture.y, &[], &own)?;
                open.clear();
            } else {
                metric(&picture.y)?;
            }
            if spec.axis(&picture.x).is_none() {
                return Err(no_axis(spec, &picture.x));
            }
            open.remove(picture.x.as_str());
        }
        Kind::Heatmap => {
            let own = [&picture.x, &picture.y].into_iter().chain(&picture.each);
            let own: Vec<String> = own.chain(picture.only.keys()).cloned().collect();
            if is_expression(&picture.value) {
                names(spec, &picture.value, &[], &own)?;
                // Its quantities name the values of the other axes.
                open.clear();
            } else {
                metric(&picture.value).map_err(|why| format!("value: {why}"))?;
            }
            if !picture.lines.is_empty() {
                return Err("a heat map has no lines; `each` makes several maps".into());
            }
            for axis in [&picture.x, &picture.y] {
                if spec.axis(axis).is_none() {
                    return Err(no_axis(spec, axis));
                }
                open.remove(axis.as_str());
            }
        }
    }
    match open.first() {
        Some(axis) => Err(format!(
            "what of the axis {axis}? name it in `lines` or `each`, or one value of it in `where`"
        )),
        None => Ok(()),
    }
}

/// Limits a text that readers are shown.
fn check_length(name: &str, text: &str) -> Result<(), String> {
    let length = text.chars().count();
    if length > LONGEST {
        return Err(format!("{name} has {length} characters, at most {LONGEST} are allowed"));
    }
    Ok(())
}

fn check_lengths(claim: &Claim) -> Result<(), String> {
    let Claim { text, reported, measured, expected, holds, unit, note, .. } = claim;
    let parts = [
        ("text", text),
        ("reported", reported),
        ("measured", measured),
        ("expected", expected),
        ("holds", holds),
        ("unit", unit),
        ("note", note),
    ];
    parts.into_iter().try_for_each(|(name, part)| check_length(name, part))
}

fn check_claim(spec: &Spec, claim: &Claim) -> Result<(), String> {
    let each = &claim.each;
    are_axes(spec, each)?;
    match claim.share {
        Some(share) if !(share > 0.0 && share <= 1.0) => {
            return Err(format!("share = {share}: use a number above 0, up to 1"));
        }
        Some(_) if each.is_empty() => return Err("share is for claims with `each`".into()),
        _ => {}
    }
    names(spec, &claim.measured, &[], each)?;
    let mut own = vec!["measured"];
    if !claim.expected.is_empty() {
        names(spec, &claim.expected, &[], each)?;
        own.push("expected");
    }
    names(spec, &claim.holds, &own, each)
}

fn are_axes(spec: &Spec, names: &[String]) -> Result<(), String> {
    let unknown = names.iter().find(|name| spec.axis(name).is_none());
    unknown.map_or(Ok(()), |name| Err(no_axis(spec, name)))
}

fn check_table(spec: &Spec, table: &TableSpec) -> Result<(), String> {
    if !is_file_name(&table.file) {
        return Err("use letters, digits, - and _ in its name".into());
    }
    are_axes(spec, &table.rows)?;
    for Column { title, value, which, .. } in &table.column {
        let place = |why: String| format!("column {title:?}: {why}");
        match (value.as_str(), which.as_str()) {
            ("", "") => return Err(place("say `value` or `which`".into())),
            (value, "") => names(spec, value, &[], &table.rows).map_err(place)?,
            ("", which) => {
                let quantity: Quantity = which.parse().map_err(place)?;
                quantity.check(spec, &table.rows).map_err(place)?;
                if !quantity.finds_a_value() {
                    return Err(place(format!(
                        "{which:?} must be an argmin or argmax over an axis"
                    )));
                }
            }
            _ => return Err(place("say `value` or `which`, not both".into())),
        }
    }
    Ok(())
}

/// Checks the names in an expression: quantities, definitions, and `own`. The place of its
/// evaluation sets the values of the axes in `each`.
fn names(spec: &Spec, text: &str, own: &[&str], each: &[String]) -> Result<(), String> {
    for name in expression::names(text)? {
        if spec.define.contains_key(&name) || own.contains(&name.as_str()) {
            continue;
        }
        let quantity: Quantity = name.parse()?;
        quantity.check(spec, each).map_err(|why| format!("{{{name}}}: {why}"))?;
    }
    Ok(())
}

/// Checks that no definition depends on itself.
fn definitions(define: &BTreeMap<String, String>) -> Result<(), String> {
    let mut needs = BTreeMap::new();
    for (name, text) in define {
        needs.insert(name.clone(), expression::names(text)?);
    }
    // Repeatedly removes a definition that depends on no remaining one.
    loop {
        let free =
            needs.iter().find(|(_, inner)| !inner.iter().any(|name| needs.contains_key(name)));
        let Some((name, _)) = free else { break };
        let name = name.clone();
        needs.remove(&name);
    }
    match needs.keys().next() {
        Some(name) => Err(format!("[define] {name}: it is defined by itself")),
        None => Ok(()),
    }
}
