use alloc::sync::Arc;
use alloc::vec;

use super::*;
use crate::examples::{Examples, Target};
use crate::model::words::layers_of;
use crate::model::{MiniBatch, Model, ModelSpec, Workspace};
use crate::params::Role;
use crate::rng::Stream;

/// One step of each network by PyTorch in double precision: printed by `tests/peers/networks.py`.
const ORACLE: &str = include_str!("oracle.txt");

/// The networks of the oracle with the size of their pictures.
const NETWORKS: [(&str, &str); 5] = [
    ("lenet", "28x28x1"),
    ("resnet:8,4", "12x12x3"),
    ("resnet:18,3", "16x16x3"),
    ("inception-bn-small,12", "12x12x3"),
    ("windows", "13x20x3"),
];

const WINDOWS: &str = "conv5x7s3,tanh,mean3s1p1,conv17x4s2p1,bn,pool2s1,flatten,linear9,bn,relu";

/// The network by this name of the oracle.
fn network(name: &str, size: &str) -> String {
    let layers = match name {
        "windows" => WINDOWS.into(),
        name => layers_of(&ModelSpec::Network(name.replace("small,", "small:"))).unwrap(),
    };
    format!("net:{size},{layers}")
}

fn shape(size: &str) -> Shape {
    let inputs = picture(size).unwrap().values();
    Shape { inputs, dense: inputs, hot: 0, target: Target::Classes(5), picture: None }
}

fn model(text: &str, shape: Shape) -> Model {
    Model::new(&ModelSpec::Network(text.into()), shape).unwrap()
}

fn refusal(text: &str, shape: Shape) -> String {
    Model::new(&ModelSpec::Network(text.into()), shape).unwrap_err().to_string()
}

/// The numbers of the oracle, from -1 to 1.
struct Numbers(u32);

impl Numbers {
    fn take(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((self.0 >> 8) as f64 / f64::from(1 << 23) - 1.0) as f32
    }

    /// Parameters, and then pictures of six rows.
    fn step(&mut self, model: &Model) -> (Vec<f32>, Examples) {
        let mut params = model.initial(Stream::new(0));
        for tensor in model.layout().tensors() {
            let fan: usize = match &tensor.shape[..] {
                [inputs @ .., _] if !inputs.is_empty() => inputs.iter().product(),
                _ => 4,
            };
            let scale = f64::powi(2.0, -((usize::BITS - (fan / 2).leading_zeros()) as i32 / 2));
            if tensor.role == Role::Parameter {
                params[tensor.keys.indices()].fill_with(|| self.take() * scale as f32);
            }
        }
        let mut examples = Examples::new(model.shape());
        for row in 0..6 {
            let values: Vec<f32> = (0..model.shape().inputs).map(|_| self.take()).collect();
            examples.push(&values, &[], crate::examples::Label::Class(row % 5)).unwrap();
        }
        (params, examples)
    }
}

#[test]
fn a_step_of_each_network_is_that_of_pytorch() {
    for (name, size) in NETWORKS {
        let model = model(&network(name, size), shape(size));
        let mut numbers = Numbers(1);
        let (params, examples) = numbers.step(&model);
        let (mut gradient, rows) = (vec![0.0; params.len()], [0, 1, 2, 3, 4, 5]);
        let loss = model.gradient(&params, &examples, &rows, &mut gradient, &mut Workspace::new());
        let mut lines = ORACLE.lines().filter_map(|line| line.strip_prefix(name)).map(|line| {
            let mut numbers = line.split_whitespace().skip(1).map(|it| it.parse::<f64>().unwrap());
            (numbers.next().unwrap(), numbers.next().unwrap())
        });
        let (right, _) = lines.next().unwrap();
        assert!((f64::from(loss) / right - 1.0).abs() < 1e-6, "{name}: {loss}, not {right}");
        for tensor in model.layout().tensors() {
            let (mut squares, mut along) = (0.0, 0.0);
            for &value in &gradient[tensor.keys.indices()] {
                squares += f64::from(value).powi(2);
                along += f64::from(value) * f64::from(numbers.take());
            }
            let (norm, right) = lines.next().unwrap();
            let bound = 1e-5 * norm.max(0.1);
            let found = (squares.sqrt(), along);
            let is_near = (found.0 - norm).abs() < bound && (found.1 - right).abs() < bound;
            assert!(is_near, "{name}: {}: {found:?}, not {norm} and {right}", tensor.name);
        }
        assert!(lines.next().is_none(), "{name} has more tensors");
    }
}

/// The mean loss of all examples, in the mode of training.
fn loss(model: &Model, params: &[f32], examples: &Examples) -> f64 {
    let rows: Vec<u32> = (0..examples.len() as u32).collect();
    let (mut unused, workspace) = (vec![0.0; params.len()], &mut Workspace::new());
    model.gradient(params, examples, &rows, &mut unused, workspace).into()
}

/// Each layer where a small step changes the loss smoothly.
const SMOOTH: [&str; 10] = [
    "linear7,tanh",
    "conv3x3",
    "conv9x1,tanh,conv2x5s2p1",
    "conv4x3s3p2,tanh,flatten,linear3",
    "conv3x4p0,bn,tanh",
    "conv4x3,pool2",
    "conv5x3,tanh,mean3s2p1,mean",
    "conv4x3,@a,conv4x1,tanh,add:a,tanh",
    "crop2,flip,conv9x3,drop0.4,tanh,linear7,drop0.5",
    "conv4x3,tanh,@a,conv2x3s1,cat:a,@b,from:a,conv3x1,cat:b,bn",
];

#[test]
fn the_gradient_of_each_layer_is_the_slope_of_the_loss() {
    for layers in SMOOTH {
        let model = model(&format!("net:6x7x2,{layers}"), shape("6x7x2"));
        let mut numbers = Numbers(7);
        let (params, examples) = numbers.step(&model);
        let (mut gradient, rows) = (vec![0.0; params.len()], [0, 1, 2, 3, 4, 5]);
        model.gradient(&params, &examples, &rows, &mut gradient, &mut Workspace::new());
        for tensor in model.layout().tensors() {
            if tensor.role != Role::Parameter {
                continue;
            }
            let mut way = vec![0.0; params.len()];
            way[tensor.keys.indices()].fill_with(|| numbers.take());
            let size = way.iter().map(|it| it * it).sum::<f32>().sqrt();
            let at = |step: f32| {
                let moved: Vec<f32> =
                    params.iter().zip(&way).map(|(value, way)| value + step * way / size).collect();
                loss(&model, &moved, &examples)
            };
            let step = 0.003;
            // The differences of two steps cancel the error of third order.
            let [far, near] = [2.0 * step, step].map(|step| at(step) - at(-step));
            let found = (8.0 * near - far) / (12.0 * f64::from(step));
            let right: f32 = gradient.iter().zip(&way).map(|(slope, way)| slope * way).sum();
            let right = f64::from(right / size);
            let error = (found - right).abs();
            assert!(
                error < 2e-4 + 2e-3 * right.abs(),
                "{layers}, {}: {found}, not {right}",
                tensor.name
            );
        }
    }
}

#[test]
#[cfg(all(feature = "std", target_arch = "x86_64"))]
fn whatever_registers_compute_it_a_step_of_a_network_is_the_same_bit_for_bit() {
    use crate::model::Objective as _;
    use crate::model::passes::Gradient;
    use crate::simd;

    let others = SMOOTH.map(|layers| format!("net:6x7x2,{layers}"));
    let all = NETWORKS.iter().map(|(name, size)| (network(name, size), *size));
    for (text, size) in all.chain(others.into_iter().map(|text| (text, "6x7x2"))) {
        let shape = shape(size);
        let network = build(text.strip_prefix("net:").unwrap(), (shape, Loss::Nll)).unwrap();
        let (params, examples) = Numbers(3).step(&model(&text, shape));
        let found = simd::all().map(|registers| {
            let (mut out, rows) = (vec![0.0; params.len()], [3, 1, 4, 1, 5]);
            let workspace = &mut Workspace::new();
            let (network, examples, rows, params) = (&network, &examples, &rows, &params);
            let gradient = &mut out;
            let batch = MiniBatch::new(examples, rows);
            let step = Gradient { network, params, batch, gradient, workspace };
            let loss = registers.run(step).to_bits();
            let mut predictions = vec![0.0; 15];
            network.predict(params, (examples, 1..4), &mut predictions, workspace);
            let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect::<Vec<_>>();
            (loss, bits(out), bits(predictions))
        });
        let found: Vec<_> = found.collect();
        assert!(found.len() > 1, "this processor has no wide registers");
        assert!(found.windows(2).all(|pair| pair[0] == pair[1]), "{text}");
    }
}

/// Threads, one after the other, the last first.
#[derive(Debug)]
struct InTurn(usize);

impl crate::model::Team for InTurn {
    fn size(&self) -> usize {
        self.0
    }

    fn run(&self, parts: &mut [&mut (dyn FnMut() + Send)]) {
        assert!((2..=self.0).contains(&parts.len()), "{} parts", parts.len());
        parts.iter_mut().rev().for_each(|part| part());
    }
}

#[test]
fn the_number_of_threads_changes_no_bit_of_a_network() {
    let wide = ("net:8x9x3,conv20x5s2,relu,linear70,tanh,drop0.2,linear33,relu", "8x9x3");
    let all = NETWORKS.iter().map(|(name, size)| (network(name, size), *size));
    for (text, size) in all.chain([(wide.0.to_string(), wide.1)]) {
        let model = model(&text, shape(size));
        let (params, examples) = Numbers(11).step(&model);
        // Products of more than are worth a thread.
        let rows: Vec<u32> = (0..700).map(|row| row % 6).collect();
        let step = |mut workspace: Workspace| {
            let mut gradient = vec![0.0; params.len()];
            let loss = model.gradient(&params, &examples, &rows, &mut gradient, &mut workspace);
            (loss.to_bits(), gradient.into_iter().map(f32::to_bits).collect::<Vec<_>>())
        };
        let wanted = step(Workspace::new());
        for threads in [1, 2, 3, 8] {
            let found = step(Workspace::of(Arc::new(InTurn(threads))));
            assert!(found == wanted, "{text}: {threads} threads");
        }
    }
}

#[test]
fn blocks_of_pictures_add_up_to_the_mean_of_all_rows() {
    let model = model("net:5x5x2,conv4x3,relu,pool2,linear6,tanh", shape("5x5x2"));
    let (params, examples) = Numbers(5).step(&model);
    let workspace = &mut Workspace::new();
    let rows: Vec<u32> = (0..150).map(|row| row % 6).collect();
    let [mut all, mut one] = [vec![0.0; params.len()], vec![0.0; params.len()]];
    model.gradient(&params, &examples, &rows, &mut all, workspace);
    model.gradient(&params, &examples, &rows[..6], &mut one, workspace);
    let far = all.iter().zip(&one).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(far < 1e-6, "{far}");
}

#[test]
fn a_network_is_evaluated_with_running_statistics_row_by_row() {
    let model = model("net:5x5x2,conv4x3,bn,relu,mean", shape("5x5x2"));
    let (mut params, examples) = Numbers(5).step(&model);
    let keys = |name: &str| {
        let tensor = model.layout().tensors().iter().find(|tensor| tensor.name == name);
        tensor.unwrap().keys.indices()
    };
    params[keys("1.running_mean")].fill(0.25);
    params[keys("1.running_var")].fill(4.0);
    let workspace = &mut Workspace::new();
    let all = model.predict(&params, &examples, 0..6, workspace).into_owned();
    for row in 0..6 {
        let one = model.predict(&params, &examples, row..row + 1, workspace);
        assert_eq!(one.column(0), all.column(row));
    }
    // Statistics of other numbers are other predictions: they are in use.
    params[keys("1.running_mean")].fill(0.5);
    assert_ne!(model.predict(&params, &examples, 0..6, workspace), all);
}

/// The gradient of these rows with the draws of a stream.
fn gradient(
    model: &Model,
    (params, examples): (&[f32], &Examples),
    rows: &[u32],
    draws: Stream,
) -> Vec<f32> {
    let (mut gradient, workspace) = (vec![0.0; params.len()], &mut Workspace::new());
    let batch = MiniBatch { examples, rows, draws };
    model.gradient_at(0..params.len(), params, batch, &mut gradient, workspace);
    gradient
}

#[test]
fn draws_follow_from_the_row_and_the_stream_alone() {
    for layers in ["crop2,conv3x3,tanh", "flip,conv3x3,tanh", "conv5x3,drop0.5,tanh"] {
        let of_layers = |layers: &str| model(&format!("net:6x7x2,{layers}"), shape("6x7x2"));
        let model = of_layers(layers);
        let (params, examples) = Numbers(5).step(&model);
        let of = |rows: &[u32], stream| {
            gradient(&model, (&params, &examples), rows, Stream::new(stream))
        };
        let apart: Vec<Vec<f32>> = (0..4).map(|row| of(&[row], 1)).collect();
        for (key, together) in of(&[3, 1, 0, 2], 1).into_iter().enumerate() {
            let mean = apart.iter().map(|gradient| gradient[key]).sum::<f32>() / 4.0;
            assert!((together - mean).abs() < 1e-6, "{layers}: {together} {mean}");
        }
        assert_ne!(of(&[0, 1, 2, 3], 1), of(&[0, 1, 2, 3], 2), "{layers}");
        let workspace = &mut Workspace::new();
        let plain = layers.replace("crop2,", "").replace("flip,", "").replace("drop0.5,", "");
        let plain = of_layers(&plain);
        let evaluated = model.predict(&params, &examples, 0..6, workspace).into_owned();
        assert_eq!(plain.predict(&params, &examples, 0..6, workspace), evaluated, "{layers}");
    }
}

#[test]
fn dropout_keeps_the_mean_and_drops_the_share() {
    // The gradient of the weights of a linear layer is the sum over values that were not dropped.
    let model = model("net:6x7x2,conv40x1,drop0.3,mean", shape("6x7x2"));
    let (mut params, mut examples) = (model.initial(Stream::new(0)), Examples::new(model.shape()));
    examples.push(&[1.0; 84], &[], crate::examples::Label::Class(0)).unwrap();
    // 42 pixels of 40 channels, each 1 + 1.
    params[..80].fill(1.0);
    params[80..].fill(0.0);
    let found = (0..100).map(|stream| {
        let of = gradient(&model, (&params, &examples), &[0], Stream::new(stream));
        // The derivatives of the last layer's weights to class 0 are its inputs times -0.8.
        let last = &of[120..];
        f64::from(last[..200].iter().step_by(5).sum::<f32>()) / -0.8 / 40.0
    });
    let mean = found.sum::<f64>() / 100.0;
    assert!((mean - 2.0).abs() < 0.02, "{mean}");
}

#[test]
fn a_known_network_follows_the_size_and_the_changes_of_its_pictures() {
    let whole = Shape { picture: picture("16x16x3"), ..shape("16x16x3") };
    let parts = model("net:16x16x3,crop2,flip,resnet:8,4", shape("16x16x3"));
    assert_eq!(parts.layout(), model("resnet:8,4", whole).layout());
}

#[test]
fn known_networks_have_their_published_numbers_of_parameters() {
    for (text, size, classes, parameters) in [
        ("lenet", "28x28x1", 10, 61_706),
        // He et al., table 6: .27 M and .85 M.
        ("resnet:20", "32x32x3", 10, 272_474),
        ("resnet:56", "32x32x3", 10, 855_770),
        ("resnet:18,64", "32x32x3", 10, 11_173_962),
    ] {
        let shape = Shape { target: Target::Classes(classes), ..shape(size) };
        let shape = Shape { picture: picture(size), ..shape };
        let model = model(text, shape);
        assert_eq!(model.layout().trained(), parameters, "{text}");
    }
}

#[test]
fn networks_that_cannot_be_are_refused_with_the_cure() {
    let plain = shape("6x7x2");
    for (text, words) in [
        ("net", "its layers are missing, as in net:linear64"),
        ("net:conv4x3", "layer 1 of the network, conv4x3: a row of 84 values is no picture: begin"),
        ("net:6x6x2,conv4x3", "6x6x2: a picture of this size has 72 values, but a row has 84"),
        ("net:6x7x2,conv4x9p0", "9x9 pixels do not fit into a picture of 6x7"),
        ("net:6x7x2,conv4x3s0", "its stride is 0"),
        ("net:6x7x2,conv4x3p3", "a padding of 3 is not below the size, 3"),
        ("net:6x7x2,conv0x3", "it has 0 channels"),
        ("net:6x7x2,conv4x3,pool8", "layer 3 of the network, pool8: 8x8 pixels do not fit"),
        ("net:6x7x2,conv4", "it is no layer; layers are convCHANNELSxSIZE"),
        ("net:6x7x2,conv4x99999999999", "it is no layer"),
        ("net:linear0", "it has 0 units"),
        ("net:", "model = net:: its layers are missing, as in net:linear64"),
        ("net:linear3,", "layer 2 of the network, : it is no layer"),
        ("net:bn,linear3", "a network begins with conv or linear"),
        ("net:relu", "a network begins with conv or linear"),
        ("net:linear3,relu,relu", "an activation follows the layer that it is of"),
        ("net:linear3,@a,relu,add:a", "put the name after the activation"),
        ("net:linear3,@a,linear4,add:a", "1x1x4 and 1x1x3 values have no sum"),
        ("net:6x7x2,conv3x3,@a,pool2,cat:a", "have no channels of the same size"),
        ("net:linear3,@a,add:a", "add:a: a is the output before it, and no other one"),
        ("net:linear3,@a,linear4,from:a,cat:a", "cat:a: a is the output before it"),
        ("net:linear3,@a,linear4,from:a", "no layer reads the output of layer 1, as its tensors"),
        ("net:linear3,add:b", "no output before it is named b: write @b"),
        ("net:linear3,@a,linear3", "@a: no other layer reads its output"),
        ("net:linear3,@a,linear3,@a,add:a", "no layer has read the output named a before"),
        ("net:linear4000000000", "its output of 1x1x4000000000 has more than 67108864 values"),
        ("net:linear60000000", "brings the model to"),
        ("net:6x7x2,conv3x4294967295p4294967294", "4294967295x4294967295 pixels do not fit"),
        ("net:6x7x2,conv3x70000p69999", "its kernel brings the pixels under all kernels to"),
        ("net:6x7x2,conv3x3s4294967295,pool1s1p1", "a padding of 1 is not below the size, 1"),
        ("net:crop2,conv3x3", "a row of 84 values is no picture: begin"),
        ("net:6x7x2,crop6,conv3x3", "a picture of 6x7x2 cannot move by 6 pixels"),
        ("net:6x7x2,conv3x3,flip", "pictures are changed before the first layer"),
        ("net:flip,6x7x2,conv3x3", "a row of 84 values is no picture: begin"),
        ("net:6x7x2,flip,6x7x2,conv3x3", "the size of the pictures is the first item"),
        ("net:linear3,drop1", "it drops a share of the values from 0 to below 1"),
        ("net:linear3,dropNaN", "it drops a share of the values from 0 to below 1"),
        ("net:drop0.1", "a network begins with conv or linear"),
        ("net:6x7x2,resnet:9", "a residual network has 18, 34 or 6 n + 2 layers"),
        ("resnet:9", "a residual network has 18, 34 or 6 n + 2 layers"),
    ] {
        let error = refusal(text, plain);
        assert!(error.contains(words), "{text}: {error}");
    }
    let sparse = Shape::sparse(84, Target::Classes(5));
    assert!(refusal("net:linear3", sparse).contains("the data are sparse rows"));
    let texts = Shape { inputs: 84, dense: 80, hot: 2, ..plain };
    assert!(refusal("net:6x7x2,conv3x3", texts).contains("the rows have columns of texts"));
    let other = Shape { picture: picture("6x6x2"), ..plain };
    assert!(refusal("net:linear3", other).contains("a picture of 6x6x2 has other values"));
}
