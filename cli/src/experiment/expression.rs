//! Expressions of claims: arithmetic and comparisons over `{quantities}` of the runs and over the
//! names that a specification defines. Their numbers are [`Sampled`]: each operation is applied to
//! the observed values, and to the values of each draw.

use std::collections::BTreeSet;

use super::bounds::Bounds;
use super::sampled::Sampled;

type Binary = fn(Sampled, Sampled) -> Sampled;
type Unary = fn(Sampled) -> Sampled;

/// Operators between two operands, by increasing priority; those of one priority apply from left
/// to right. An operator comes before its own prefix.
const BINARY: [&[(&str, Binary)]; 6] = [
    &[("||", |a, b| a.with(b, Bounds::or))],
    &[("&&", |a, b| a.with(b, Bounds::and))],
    &[
        ("<=", |a, b| a.with(b, Bounds::at_most)),
        (">=", |a, b| a.with(b, |a, b| b.at_most(a))),
        ("<", |a, b| a.with(b, Bounds::below)),
        (">", |a, b| a.with(b, |a, b| b.below(a))),
    ],
    &[("+", Sampled::plus), ("-", Sampled::minus)],
    &[("*", Sampled::times), ("/", Sampled::over)],
    &[("^", |a, b| a.with(b, Bounds::to_the))],
];
/// Operators before an operand, above all others.
const UNARY: [(&str, Unary); 2] = [("-", Sampled::negated), ("!", |a| a.map(Bounds::not))];
const FUNCTIONS: [(&str, Unary); 4] = [
    ("abs", |a| a.map(Bounds::abs)),
    ("sqrt", |a| a.map(Bounds::sqrt)),
    ("ln", |a| a.map(Bounds::ln)),
    ("exp", |a| a.map(Bounds::exp)),
];
const FUNCTIONS_OF_TWO: [(&str, Binary); 2] =
    [("min", |a, b| a.with(b, Bounds::lesser)), ("max", |a, b| a.with(b, Bounds::greater))];
/// The deepest nesting, which bounds the stack.
const MAX_DEPTH: usize = 64;
const EACH_HAS_OPERANDS: &str = "the parser puts each operation after its operands";

/// An operand, or an operation on the values before it.
enum Step<'a> {
    Number(Sampled),
    Name(&'a str),
    Unary(Unary),
    Binary(Binary),
}

/// Reads an expression into steps in postfix order.
struct Parser<'a> {
    rest: &'a str,
    depth: usize,
    steps: Vec<Step<'a>>,
}

impl<'a> Parser<'a> {
    /// Takes a token, and the white space after it, from the rest.
    fn takes(&mut self, token: &str) -> bool {
        let rest = self.rest.strip_prefix(token);
        self.rest = rest.map_or(self.rest, str::trim_start);
        rest.is_some()
    }

    fn expects(&mut self, token: &str) -> Result<(), String> {
        if self.takes(token) { Ok(()) } else { Err(self.wanted(&format!("{token:?}"))) }
    }

    fn wanted(&self, what: &str) -> String {
        match self.rest {
            "" => format!("{what} is missing at its end"),
            rest => format!("{what} is missing before {rest:?}"),
        }
    }

    /// Reads operands and the operators between them, of this priority and above.
    fn operands(&mut self, priority: usize) -> Result<(), String> {
        let Some(operators) = BINARY.get(priority) else { return self.operand() };
        self.operands(priority + 1)?;
        while let Some((_, apply)) = operators.iter().find(|(token, _)| self.takes(token)) {
            self.operands(priority + 1)?;
            self.steps.push(Step::Binary(*apply));
        }
        Ok(())
    }

    fn operand(&mut self) -> Result<(), String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("it is nested more than {MAX_DEPTH} deep"));
        }
        if let Some((_, apply)) = UNARY.iter().find(|(token, _)| self.takes(token)) {
            self.operand()?;
            self.steps.push(Step::Unary(*apply));
        } else if self.takes("(") {
            self.operands(0)?;
            self.expects(")")?;
        } else if self.rest.starts_with(|c: char| c.is_ascii_digit()) {
            let number = self.token(number(self.rest)).parse()?;
            self.steps.push(Step::Number(number));
        } else if let Some(named) = self.rest.strip_prefix('{') {
            let end = named.find(['{', '}']).filter(|end| named[*end..].starts_with('}'));
            let end = end.ok_or_else(|| self.wanted("a closing brace"))?;
            self.steps.push(Step::Name(&named[..end]));
            self.rest = named[end + 1..].trim_start();
        } else {
            self.name()?;
        }
        self.depth -= 1;
        Ok(())
    }

    /// Reads a name, or the call of a function.
    fn name(&mut self) -> Result<(), String> {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        if end == 0 {
            return Err(self.wanted("an operand"));
        }
        let name = self.token(end);
        let step = if let Some((_, apply)) = FUNCTIONS.iter().find(|of| of.0 == name) {
            self.arguments(1)?;
            Step::Unary(*apply)
        } else if let Some((_, apply)) = FUNCTIONS_OF_TWO.iter().find(|of| of.0 == name) {
            self.arguments(2)?;
            Step::Binary(*apply)
        } else {
            Step::Name(name)
        };
        self.steps.push(step);
        Ok(())
    }

    /// Reads so many arguments of a function, in parentheses.
    fn arguments(&mut self, count: usize) -> Result<(), String> {
        for place in 0..count {
            self.expects(if place == 0 { "(" } else { "," })?;
            self.operands(0)?;
        }
        self.expects(")")
    }

    /// Takes a token of this many bytes.
    fn token(&mut self, end: usize) -> &'a str {
        let (token, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        token
    }
}

/// Returns the length of the number that a text starts with: `12`, `1.5`, `1.5e-3`.
fn number(text: &str) -> usize {
    let digits = |from: usize| {
        let rest = &text[from..];
        rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())
    };
    let mut end = digits(0);
    if text[end..].starts_with('.') && digits(end + 1) > 0 {
        end += 1 + digits(end + 1);
    }
    if text[end..].starts_with('e') {
        let sign = usize::from(text[end + 1..].starts_with(['+', '-']));
        if digits(end + 1 + sign) > 0 {
            end += 1 + sign + digits(end + 1 + sign);
        }
    }
    end
}

fn parse(text: &str) -> Result<Vec<Step<'_>>, String> {
    let mut parser = Parser { rest: text.trim(), depth: 0, steps: Vec::new() };
    let parsed = parser.operands(0).and_then(|()| match parser.rest {
        "" => Ok(()),
        _ => Err(parser.wanted("an operator")),
    });
    parsed.map_err(|error| format!("{text:?} is no expression: {error}"))?;
    Ok(parser.steps)
}

/// The names in an expression, with and without braces, sorted.
pub(super) fn names(text: &str) -> Result<Vec<String>, String> {
    let steps = parse(text)?;
    let names = steps.iter().filter_map(|step| match step {
        Step::Name(name) => Some((*name).to_owned()),
        Step::Number(_) | Step::Unary(_) | Step::Binary(_) => None,
    });
    Ok(names.collect::<BTreeSet<_>>().into_iter().collect())
}

/// Evaluates an expression; `value` returns the value of each name.
pub(super) fn evaluate(
    text: &str,
    mut value: impl FnMut(&str) -> Result<Sampled, String>,
) -> Result<Sampled, String> {
    let mut values = Vec::new();
    for step in parse(text)? {
        let mut operand = || values.pop().unwrap_or_else(|| unreachable!("{EACH_HAS_OPERANDS}"));
        let result = match step {
            Step::Number(number) => number,
            Step::Name(name) => value(name)?,
            Step::Unary(apply) => apply(operand()),
            Step::Binary(apply) => {
                let right = operand();
                apply(operand(), right)
            }
        };
        values.push(result);
    }
    Ok(values.pop().unwrap_or_else(|| unreachable!("{EACH_HAS_OPERANDS}")))
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
