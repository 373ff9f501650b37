//! Networks in text form: `net:28x28x1,conv6x5,relu,pool2,linear84,relu`.
//!
//! The items of the text are the layers, first to last, after the size of the pictures and their
//! changes in training (`crop4`, `flip`). A linear layer with the outputs that the
//! loss needs follows them. A convolution before batch normalisation has no bias. `@NAME` names an
//! output; `from:NAME` goes on from it, `add:NAME` adds it, and `cat:NAME` puts its channels before
//! the others.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use super::augmentation::Augmentation;
use super::layer::{
    Add, AnyLayer, BatchNorm, Concatenate, Convolution, Dropout, Flatten, Layer as _, Linear, Pool,
    Pooling, Window,
};
use super::network::{Builder, Inputs, Network};
use super::{Activation, Loss, ModelError};
use crate::examples::{Picture, Shape};

/// Builds the network of `layers` for examples of `shape`. The loss fits the target.
pub(super) fn build(layers: &str, (shape, loss): (Shape, Loss)) -> Result<Network, ModelError> {
    if shape.is_sparse() {
        return Err(ModelError::Sparse);
    }
    let items = layers.split(',').map(str::trim).filter(|_| !layers.is_empty());
    let items: Vec<&str> = items.collect();
    let mut reader = Reader::new(shape);
    for (place, item) in items.iter().enumerate() {
        let is_before_norm = items.get(place + 1) == Some(&"bn");
        let read = reader.item(item, is_before_norm);
        read.map_err(|problem| problem.of(place + 1, item))?;
    }
    let outputs = loss.outputs(shape.target) as u32;
    let end = (items.len() + 1, "the last linear layer");
    reader.linear(outputs).map_err(|problem| problem.of(end.0, end.1))?;
    if let Some(name) = reader.unread() {
        let problem = format!("no other layer reads its output; use add:{name} or cat:{name}");
        return Err(refused(items.len(), &format!("@{name}"), problem));
    }
    if let Some(number) = reader.builder.unread() {
        let problem = format!(
            "no layer reads the output of layer {number}, as its tensors count: name it, and use \
             add: or cat:"
        );
        return Err(refused(end.0, end.1, problem));
    }
    Ok(reader.builder.build(loss, shape.target))
}

/// The most values of an output: a description that is not from this program asks for no more
/// memory.
const MOST_VALUES: u32 = 1 << 26;

/// The most pixels under the kernels of all convolutions, which are listed.
const MOST_TAPS: u64 = 1 << 26;

fn refused(place: usize, item: &str, problem: String) -> ModelError {
    ModelError::Layer { place, item: item.into(), problem }
}

/// A picture's size: `HEIGHTxWIDTHxCHANNELS`.
fn picture(item: &str) -> Option<Picture> {
    let mut sizes = item.split('x').map(|size| size.parse().ok());
    let (height, width, channels) = (sizes.next()??, sizes.next()??, sizes.next()??);
    sizes.next().is_none().then_some(Picture { height, width, channels })
}

/// The numbers of an item, each after its letter, in the order of `letters`; the first has none.
fn numbers<const N: usize>(text: &str, letters: [char; N]) -> Option<[Option<u32>; N]> {
    let (mut numbers, mut rest) = ([None; N], text);
    for (number, letter) in numbers.iter_mut().zip(letters) {
        let Some(begin) = (if letter == ' ' { Some(rest) } else { rest.strip_prefix(letter) })
        else {
            continue;
        };
        let end = begin.find(|c: char| !c.is_ascii_digit()).unwrap_or(begin.len());
        (*number, rest) = (Some(begin[..end].parse().ok()?), &begin[end..]);
    }
    rest.is_empty().then_some(numbers)
}

/// What is wrong with an item.
enum Problem {
    Item(String),
    Model(ModelError),
}

impl Problem {
    fn of(self, place: usize, item: &str) -> ModelError {
        match self {
            Self::Item(problem) => refused(place, item, problem),
            Self::Model(error) => error,
        }
    }
}

impl From<String> for Problem {
    fn from(problem: String) -> Self {
        Self::Item(problem)
    }
}

impl From<ModelError> for Problem {
    fn from(error: ModelError) -> Self {
        Self::Model(error)
    }
}

/// The layers read so far.
struct Reader {
    builder: Builder,
    shape: Shape,
    /// The size of an example.
    size: Picture,
    /// The output that the next layer reads.
    current: Inputs,
    /// The pixels under the kernels of all convolutions, at all their places.
    taps: u64,
    /// The named outputs, and whether a layer has read each.
    names: BTreeMap<String, (usize, bool)>,
}

impl Reader {
    fn new(shape: Shape) -> Self {
        let size = shape.picture.unwrap_or_else(|| Picture::row(shape.inputs));
        let (builder, names) = (Builder::new(), BTreeMap::new());
        Self { builder, shape, size, current: Inputs::Examples, taps: 0, names }
    }

    /// Reads the examples as pictures.
    fn see_as(&mut self, picture: Picture) -> Result<(), Problem> {
        let Shape { inputs, dense, hot, .. } = self.shape;
        if self.builder.len() > 0 || self.builder.augmentation.is_some() {
            let problem = "the size of the pictures is the first item";
            return Err(Problem::Item(problem.into()));
        }
        if hot > 0 || dense != inputs {
            let problem = "the rows have columns of texts, and pictures have numbers alone";
            return Err(Problem::Item(problem.into()));
        }
        if picture.values() != inputs || inputs == 0 {
            let values = picture.values();
            return Err(Problem::Item(format!(
                "a picture of this size has {values} values, but a row has {inputs}"
            )));
        }
        self.size = picture;
        Ok(())
    }

    /// Changes the pictures in training.
    fn augment(&mut self, change: impl FnOnce(&mut Augmentation)) -> Result<(), Problem> {
        let size = self.size;
        if self.builder.len() > 0 {
            return Err(Problem::Item("pictures are changed before the first layer".into()));
        }
        self.need_pictures()?;
        let none = Augmentation { size, crop: 0, flip: false };
        let augmentation = self.builder.augmentation.get_or_insert(none);
        change(augmentation);
        let (crop, least) = (augmentation.crop, size.height.min(size.width));
        if crop >= least {
            return Err(Problem::Item(format!("a picture of {size} cannot move by {crop} pixels")));
        }
        Ok(())
    }

    /// Refuses rows that are no pictures.
    fn need_pictures(&self) -> Result<(), Problem> {
        if self.size.pixels() > 1 {
            return Ok(());
        }
        let inputs = self.shape.inputs;
        Err(Problem::Item(format!(
            "a row of {inputs} values is no picture: begin with the size of the pictures, \
             HEIGHTxWIDTHxCHANNELS, as in net:28x28x1,conv6x5"
        )))
    }

    fn drop(&mut self, rate: f32) -> Result<(), Problem> {
        let size = self.after_a_layer()?;
        // NaN is not in the range.
        if !(0.0..1.0).contains(&rate) {
            return Err(Problem::Item("it drops a share of the values from 0 to below 1".into()));
        }
        self.push(self.current, Dropout { size, rate })
    }

    /// The size of the current output.
    fn current_size(&self) -> Picture {
        match self.current {
            Inputs::One(stage) => self.builder.size(stage),
            _ => self.size,
        }
    }

    fn push(&mut self, inputs: Inputs, layer: impl Into<AnyLayer>) -> Result<(), Problem> {
        let layer = layer.into();
        let (size, most) = (layer.output(), MOST_VALUES);
        if size.values() > most {
            return Err(Problem::Item(format!("its output of {size} has more than {most} values")));
        }
        self.current = Inputs::One(self.builder.push(inputs, layer)?);
        Ok(())
    }

    /// Appends the layer of an item.
    fn item(&mut self, item: &str, is_before_norm: bool) -> Result<(), Problem> {
        let name_of = |word: &str| item.strip_prefix(word).filter(|name| !name.is_empty());
        if let Some(name) = name_of("@") {
            return self.name(name);
        }
        if let Some(name) = name_of("from:") {
            self.current = Inputs::One(self.named(name)?);
            return Ok(());
        }
        if let Some(name) = name_of("add:") {
            return self.add(name);
        }
        if let Some(name) = name_of("cat:") {
            return self.concatenate(name);
        }
        if let Some(picture) = picture(item) {
            return self.see_as(picture);
        }
        if let Some([Some(pixels)]) = item.strip_prefix("crop").and_then(|it| numbers(it, [' '])) {
            return self.augment(|augmentation| augmentation.crop = pixels);
        }
        if let Some(rate) = item.strip_prefix("drop").and_then(|it| it.parse().ok()) {
            return self.drop(rate);
        }
        match item {
            "flip" => return self.augment(|augmentation| augmentation.flip = true),
            "relu" => return self.activate(Activation::Relu),
            "tanh" => return self.activate(Activation::Tanh),
            "bn" => {
                let size = self.after_a_layer()?;
                return self.push(self.current, BatchNorm { size });
            }
            "flatten" => {
                let size = self.after_a_layer()?;
                return self.push(self.current, Flatten::new(size));
            }
            "mean" => {
                let size = self.after_a_layer()?;
                let whole = Window { size: (size.height, size.width), stride: 1, padding: 0 };
                return self.pool(whole, Pooling::Mean);
            }
            _ => {}
        }
        if let Some([Some(units)]) = item.strip_prefix("linear").and_then(|it| numbers(it, [' '])) {
            return self.linear(units);
        }
        let conv = item.strip_prefix("conv").and_then(|it| numbers(it, [' ', 'x', 's', 'p']));
        if let Some([Some(channels), Some(size), stride, padding]) = conv {
            let window = Window::square(size, stride.unwrap_or(1), padding.unwrap_or(size / 2));
            return self.convolution(window, channels, !is_before_norm);
        }
        for (word, pooling) in [("pool", Pooling::Greatest), ("mean", Pooling::Mean)] {
            let pool = item.strip_prefix(word).and_then(|it| numbers(it, [' ', 's', 'p']));
            if let Some([Some(size), stride, padding]) = pool {
                let stride = stride.unwrap_or(size);
                return self.pool(Window::square(size, stride, padding.unwrap_or(0)), pooling);
            }
        }
        Err(Problem::Item(FORMS.to_string()))
    }

    /// The size of the output of the layer before, which must be a layer.
    fn after_a_layer(&self) -> Result<Picture, Problem> {
        if self.current == Inputs::Examples {
            return Err(Problem::Item("a network begins with conv or linear".into()));
        }
        Ok(self.current_size())
    }

    fn activate(&mut self, activation: Activation) -> Result<(), Problem> {
        self.after_a_layer()?;
        let last = self.builder.len() - 1;
        if self.current != Inputs::One(last) || self.builder.is_activated() {
            return Err(Problem::Item("an activation follows the layer that it is of".into()));
        }
        if self.names.values().any(|(stage, _)| *stage == last) {
            let problem = "the output before it has a name: put the name after the activation";
            return Err(Problem::Item(problem.into()));
        }
        self.builder.activate(activation);
        Ok(())
    }

    fn linear(&mut self, units: u32) -> Result<(), Problem> {
        let mut size = self.current_size();
        if units == 0 {
            return Err(Problem::Item("it has 0 units: it needs 1 or more".into()));
        }
        if size.pixels() > 1 && self.current != Inputs::Examples {
            self.push(self.current, Flatten::new(size))?;
            size = self.current_size();
        }
        self.push(self.current, Linear::new(size.values(), units))
    }

    fn convolution(
        &mut self,
        window: Window,
        channels: u32,
        has_bias: bool,
    ) -> Result<(), Problem> {
        let size = self.current_size();
        if self.current == Inputs::Examples {
            self.need_pictures()?;
        }
        if channels == 0 {
            return Err(Problem::Item("it has 0 channels: it needs 1 or more".into()));
        }
        if let Some(places) = window.places(size) {
            let taps = window.len().saturating_mul(places.pixels().into());
            self.taps = self.taps.saturating_add(taps);
            if self.taps > MOST_TAPS {
                return Err(Problem::Item(format!(
                    "its kernel brings the pixels under all kernels to {}: at most {MOST_TAPS} are \
                     possible",
                    self.taps
                )));
            }
        }
        let layer = Convolution::new(size, window, channels, has_bias);
        self.push(self.current, layer.ok_or_else(|| does_not_fit(window, size))?)
    }

    fn pool(&mut self, window: Window, pooling: Pooling) -> Result<(), Problem> {
        let size = self.after_a_layer()?;
        let layer = Pool::new(size, window, pooling);
        self.push(self.current, layer.ok_or_else(|| does_not_fit(window, size))?)
    }

    /// Names the current output.
    fn name(&mut self, name: &str) -> Result<(), Problem> {
        self.after_a_layer()?;
        let Inputs::One(stage) = self.current else { return Ok(()) };
        match self.names.insert(name.into(), (stage, false)) {
            Some((_, false)) => Err(Problem::Item(format!(
                "no layer has read the output named {name} before: use another name"
            ))),
            _ => Ok(()),
        }
    }

    /// The layer whose output has a name.
    fn named(&mut self, name: &str) -> Result<usize, Problem> {
        let Some((stage, is_read)) = self.names.get_mut(name) else {
            return Err(Problem::Item(format!(
                "no output before it is named {name}: write @{name}"
            )));
        };
        *is_read = true;
        Ok(*stage)
    }

    /// A name that no layer has read.
    fn unread(&self) -> Option<&str> {
        self.names.iter().find(|(_, (_, is_read))| !is_read).map(|(name, _)| name.as_str())
    }

    /// The layer whose output has a name and the current one, which is another, with their sizes.
    fn both(&mut self, name: &str) -> Result<([usize; 2], [Picture; 2]), Problem> {
        let (other, size) = (self.named(name)?, self.after_a_layer()?);
        match self.current {
            Inputs::One(current) if current != other => {
                Ok(([other, current], [self.builder.size(other), size]))
            }
            _ => Err(Problem::Item(format!("{name} is the output before it, and no other one"))),
        }
    }

    fn add(&mut self, name: &str) -> Result<(), Problem> {
        let ([other, current], [of_other, size]) = self.both(name)?;
        if size != of_other {
            return Err(Problem::Item(format!("{size} and {of_other} values have no sum")));
        }
        self.push(Inputs::Two([other, current]), Add { size })
    }

    fn concatenate(&mut self, name: &str) -> Result<(), Problem> {
        let ([other, current], [of_other, size]) = self.both(name)?;
        if (size.height, size.width) != (of_other.height, of_other.width) {
            return Err(Problem::Item(format!(
                "pictures of {size} and {of_other} have no channels of the same size"
            )));
        }
        self.push(Inputs::Two([other, current]), Concatenate { inputs: [of_other, size] })
    }
}

/// The forms of the items, for an item that has none of them.
const FORMS: &str = "it is no layer; layers are convCHANNELSxSIZE[sSTRIDE][pPADDING], \
    pool or meanSIZE[sSTRIDE][pPADDING], mean, linearUNITS, bn, dropRATE, relu, tanh, flatten, \
    @NAME, from:NAME, add:NAME and cat:NAME; HEIGHTxWIDTHxCHANNELS, cropPIXELS and flip come first";

fn does_not_fit(window: Window, size: Picture) -> Problem {
    let Window { size: (height, width), stride, padding } = window;
    let Picture { height: rows, width: columns, .. } = size;
    Problem::Item(match (stride, padding >= height.min(width)) {
        (0, _) => "its stride is 0: it needs 1 or more".into(),
        (_, true) => format!("a padding of {padding} is not below the size, {height}"),
        _ => format!("{height}x{width} pixels do not fit into a picture of {rows}x{columns}"),
    })
}

#[cfg(test)]
mod tests;
