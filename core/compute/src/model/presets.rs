//! Networks that are known by name, as text.

use alloc::format;
use alloc::string::String;

/// `LeNet` (LeCun et al., 1998) with ReLU and the greatest value of each pool.
pub(super) const LENET: &str =
    "conv6x5,relu,pool2,conv16x5p0,relu,pool2,linear120,relu,linear84,relu";

/// Appends layers.
struct Text(String);

impl Text {
    fn push(&mut self, layers: &str) {
        if !self.0.is_empty() {
            self.0.push(',');
        }
        self.0.push_str(layers);
    }

    /// A residual block of two convolutions (He et al., CVPR 2016). Its shortcut is a convolution
    /// where the picture or the channels change.
    fn residual(&mut self, channels: u32, stride: u32, is_same: bool) {
        self.push("@in");
        self.push(&format!("conv{channels}x3s{stride},bn,relu,conv{channels}x3,bn"));
        if !is_same {
            self.push(&format!("@out,from:in,conv{channels}x1s{stride},bn,add:out,relu"));
        } else {
            self.push("add:in,relu");
        }
    }

    /// A convolution, batch normalisation and an activation.
    fn convolution(&mut self, channels: u32, size: u32, stride: u32) {
        self.push(&format!("conv{channels}x{size}s{stride},bn,relu"));
    }
}

/// The residual network of this depth, whose first block has `width` channels (He et al., CVPR
/// 2016): 18 or 34 layers in four stages (64 channels first in the paper), or 6 n + 2 layers in
/// three stages for small pictures (16 channels first). The first convolution is 3x3. `None` if the
/// depth is none of these.
pub(super) fn resnet(depth: u32, width: u32) -> Option<String> {
    let (blocks, stages): ([u32; 4], usize) = match depth {
        18 => ([2; 4], 4),
        34 => ([3, 4, 6, 3], 4),
        _ if depth >= 8 && depth % 6 == 2 => ([(depth - 2) / 6; 4], 3),
        _ => return None,
    };
    let mut text = Text(String::new());
    text.convolution(width, 3, 1);
    for (stage, blocks) in blocks[..stages].iter().enumerate() {
        for block in 0..*blocks {
            let is_first = stage > 0 && block == 0;
            text.residual(width << stage, 1 + u32::from(is_first), !is_first);
        }
    }
    text.push("mean,flatten");
    Some(text.0)
}

/// The small Inception network with batch normalisation, for pictures of 28x28 or 32x32 pixels
/// (Ioffe and Szegedy, ICML 2015, as in MXNet's `inception-bn-28-small`). The first convolution has
/// `width` channels, 96 in the original; the others are in proportion.
pub(super) fn inception(width: u32) -> String {
    let scaled = |channels: u32| (channels * width / 96).max(1);
    let mut text = Text(String::new());
    text.convolution(width, 3, 1);
    let mixed: [&[(u32, u32)]; 3] = [
        &[(32, 32), (32, 48)],
        &[(112, 48), (96, 64), (80, 80), (48, 96)],
        &[(176, 160), (176, 160)],
    ];
    for (stage, blocks) in mixed.into_iter().enumerate() {
        for (narrow, wide) in blocks {
            text.push("@in");
            text.convolution(scaled(*narrow), 1, 1);
            text.push("@narrow,from:in");
            text.convolution(scaled(*wide), 3, 1);
            text.push("cat:narrow");
        }
        if let Some(channels) = [80, 96].get(stage) {
            text.push("@in");
            text.convolution(scaled(*channels), 3, 2);
            text.push("@narrow,from:in,pool3s2p1,cat:narrow");
        }
    }
    text.push("mean,flatten");
    text.0
}
