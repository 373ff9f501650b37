//! Expressions of claims: arithmetic and comparisons over `{quantities}` of the runs and over the
//! names that a specification defines. exmex parses them. Their numbers are [`Sampled`]: each
//! operation is applied to the observed values, and to the values of each draw.

use exmex::prelude::{Express, FlatEx};
use exmex::{BinOp, MakeOperators, MatchLiteral, Operator, literal_matcher_from_pattern};

use super::bounds::Bounds;
use super::sampled::Sampled;

#[derive(Clone, Debug)]
struct Operators;

literal_matcher_from_pattern!(Numbers, r"^[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?");

type Parsed<'a> = FlatEx<Sampled, Operators, Numbers>;

impl MakeOperators<Sampled> for Operators {
    fn make<'a>() -> Vec<Operator<'a, Sampled>> {
        let binary = |apply: fn(Sampled, Sampled) -> Sampled, prio| BinOp {
            apply,
            prio,
            is_commutative: false,
        };
        vec![
            Operator::make_bin("||", binary(|a, b| a.with(b, Bounds::or), 0)),
            Operator::make_bin("&&", binary(|a, b| a.with(b, Bounds::and), 1)),
            Operator::make_bin("<", binary(|a, b| a.with(b, Bounds::below), 2)),
            Operator::make_bin("<=", binary(|a, b| a.with(b, Bounds::at_most), 2)),
            Operator::make_bin(">", binary(|a, b| a.with(b, |a, b| b.below(a)), 2)),
            Operator::make_bin(">=", binary(|a, b| a.with(b, |a, b| b.at_most(a)), 2)),
            Operator::make_bin("+", binary(Sampled::plus, 3)),
            Operator::make_bin_unary("-", binary(Sampled::minus, 3), Sampled::negated),
            Operator::make_bin("*", binary(Sampled::times, 4)),
            Operator::make_bin("/", binary(Sampled::over, 4)),
            Operator::make_bin("^", binary(|a, b| a.with(b, Bounds::to_the), 5)),
            Operator::make_bin("min", binary(|a, b| a.with(b, Bounds::lesser), 6)),
            Operator::make_bin("max", binary(|a, b| a.with(b, Bounds::greater), 6)),
            Operator::make_unary("!", |a: Sampled| a.map(Bounds::not)),
            Operator::make_unary("abs", |a: Sampled| a.map(Bounds::abs)),
            Operator::make_unary("sqrt", |a: Sampled| a.map(Bounds::sqrt)),
            Operator::make_unary("ln", |a: Sampled| a.map(Bounds::ln)),
            Operator::make_unary("exp", |a: Sampled| a.map(Bounds::exp)),
        ]
    }
}

fn parse(text: &str) -> Result<Parsed<'_>, String> {
    // exmex does not reject unmatched braces.
    let mut open = false;
    for brace in text.chars().filter(|c| ['{', '}'].contains(c)) {
        if (brace == '{') == open {
            return Err(format!("{text:?} is no expression: its braces do not match"));
        }
        open = !open;
    }
    if open {
        return Err(format!("{text:?} is no expression: its braces do not match"));
    }
    Parsed::parse(text).map_err(|error| {
        format!("{text:?} is no expression: {}", error.to_string().trim_end_matches(['\n', ' ']))
    })
}

/// The names in an expression, with and without braces.
pub(super) fn names(text: &str) -> Result<Vec<String>, String> {
    Ok(parse(text)?.var_names().to_vec())
}

/// Evaluates an expression; `value` returns the value of each name.
pub(super) fn evaluate(
    text: &str,
    value: impl FnMut(&str) -> Result<Sampled, String>,
) -> Result<Sampled, String> {
    let parsed = parse(text)?;
    let names = parsed.var_names().to_vec();
    let values: Vec<Sampled> =
        names.iter().map(String::as_str).map(value).collect::<Result<_, _>>()?;
    parsed.eval(&values).map_err(|error| format!("{text:?}: {error}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn exactly(value: f64) -> Sampled {
        Sampled::exactly(Bounds::exactly(value))
    }

    fn of(text: &str) -> Option<f64> {
        let value = |name: &str| match name {
            "x" => Ok(exactly(2.0)),
            "time_s; delay=100, partition=iid" => Ok(exactly(38.6)),
            name => Err(format!("no {name}")),
        };
        evaluate(text, value).unwrap().observed().exact()
    }

    #[test]
    fn expressions_are_evaluated_with_the_usual_priorities() {
        assert_eq!(of("1 + 2 * x ^ 3"), Some(17.0));
        assert_eq!(of("{time_s; delay=100, partition=iid} / x"), Some(19.3));
        assert_eq!(of("abs(x - 5) - 1.5e1"), Some(-12.0));
        assert_eq!(of("max(x, 3) <= 3 && x > 1.5"), Some(1.0));
        assert_eq!(of("x >= 3 || !(x < 3)"), Some(0.0));
        assert_eq!(of("sqrt((x + 2) / 4)"), Some(1.0));
    }

    #[test]
    fn names_are_those_with_braces_and_those_without() {
        assert_eq!(names("{a; b=c} / t1 - 2 * min(t1, x)").unwrap(), ["a; b=c", "t1", "x"]);
    }

    #[test]
    fn what_is_no_expression_is_an_error() {
        for text in ["", "1 +", "(1", "1 2", "{a", "a}", "* 3", "measured =< 3", "1 ? 2"] {
            let said = names(text).unwrap_err();
            assert!(said.contains(&format!("{text:?}")), "{said}");
        }
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_parser(text in r"[-+*/^(){}<>=&|!,. a-c0-9]{0,24}|(min|abs|\(|\)|,|1|x|-){0,12}") {
            if let Ok(names) = names(&text) {
                let _any = evaluate(&text, |_| Ok(exactly(names.len() as f64)));
            }
        }
    }
}
