//! Sends a flood of TLS hellos for `tests/measure/flood.sh`, and prints their number at the end.
//!
//! `flood PSTRAIN CLIENT_FOLDER SERVER_PORT ADDRESSES RATE SECONDS`

#![expect(clippy::print_stdout, reason = "it is run by a script")]

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::{Command, Stdio};
use std::time::Duration;

use pstrain_tests::{Flood, FloodSpec, tls_hello};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [pstrain, client, port, addresses, rate, seconds] = args.as_slice() else {
        return Err("give PSTRAIN CLIENT_FOLDER SERVER_PORT ADDRESSES RATE SECONDS".into());
    };
    let mut asks = None;
    let hello = tls_hello(|address| {
        let mut status = Command::new(pstrain);
        status.args(["status", address, "--tls", client]).stderr(Stdio::null());
        asks = status.spawn().ok();
    })?;
    if let Some(mut asks) = asks {
        asks.kill()?;
        asks.wait()?;
    }
    let rate: u64 = rate.parse()?;
    let flood = Flood::start(&FloodSpec {
        server: SocketAddrV4::new(Ipv4Addr::LOCALHOST, port.parse()?),
        hello,
        addresses: addresses.parse()?,
        rate,
        most: rate * seconds.parse::<u64>()?,
    });
    println!("begun");
    while !flood.is_over() {
        std::thread::sleep(Duration::from_millis(10));
    }
    println!("{} hellos sent, {} connections refused", flood.sent(), flood.failed());
    Ok(())
}
