//! The macro behind the table of messages, and the parties that the table names.

/// A node, by its part in a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Party {
    /// Any node.
    Node,
    /// A worker.
    Worker,
    /// A server; in a conversation with the coordinator, another server.
    Server,
    /// The server that coordinates a group of servers.
    Coordinator,
    /// The meeting point of workers without a server.
    Meeting,
    /// A client that is no worker, such as a person's command.
    Client,
    /// A server that has a standby.
    Primary,
    /// The standby of a server.
    Standby,
    /// A node whose vote decides who leads.
    Elector,
}

/// Sender and receiver of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The sender.
    pub from: Party,
    /// The receiver.
    pub to: Party,
}

/// Turns the table of messages into `Message` and `Kind`.
///
/// An entry has one of three forms:
/// - `Name(Type)`: the whole value is the control part.
/// - `Name(Type { a, b; c: content })`: fields `a` and `b` are the control part, field `c` is the
///   payload, whose [`Content`](crate::payload::Content) is `content`.
/// - `Name(Type: Parts)`: the type implements [`Parts`](crate::payload::Parts) itself.
///
/// After it come the number of the kind, and each sender with its receiver.
macro_rules! messages {
    ($($conversation:literal {$(
        $(#[doc = $about:literal])+
        $name:ident(
            $type:ty $({ $($field:ident),+; $payload:ident: $content:expr })? $(: $own:ident)?
        ) = $number:literal, $($from:ident -> $to:ident),+;
    )+})+) => {
        /// A message between two nodes.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Message {$($(
            $(#[doc = $about])+
            ///
            $(#[doc = concat!("- ", stringify!($from), " to ", stringify!($to))])+
            $name($type),
        )+)+}

        /// The kind of message that a frame carries.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Kind {$($(
            #[doc = concat!("The number of [`Message::", stringify!($name), "`].")]
            $name = $number,
        )+)+}

        impl Kind {
            /// All kinds, in the order of the table.
            pub const ALL: &[Self] = &[$($(Self::$name),+),+];

            /// Returns the kind with this number.
            #[must_use]
            pub const fn from_number(number: u8) -> Option<Self> {
                match number { $($($number => Some(Self::$name),)+)+ _ => None }
            }

            /// Returns the heading of the kind's conversation.
            #[must_use]
            pub const fn conversation(self) -> &'static str {
                match self { $($(Self::$name)|+ => $conversation),+ }
            }

            /// Returns the senders with their receivers.
            #[must_use]
            pub const fn ways(self) -> &'static [Way] {
                match self {
                    $($(Self::$name => &[$(Way { from: Party::$from, to: Party::$to }),+],)+)+
                }
            }

            /// Returns the content of the payload; none if messages of this kind have no payload.
            #[must_use]
            pub const fn content(self) -> Option<Content> {
                match self { $($(Self::$name => <$type as Parts>::CONTENT,)+)+ }
            }

            /// Returns the description.
            #[must_use]
            pub const fn about(self) -> &'static str {
                match self { $($(Self::$name => concat!($($about),+),)+)+ }
            }
        }

        impl Message {
            /// Returns the kind of this message.
            #[must_use]
            pub const fn kind(&self) -> Kind {
                match self { $($(Self::$name(_) => Kind::$name,)+)+ }
            }

            /// Returns the payload; empty if this kind of message has none.
            #[must_use]
            pub fn payload(&self) -> Payload<'_> {
                match self { $($(Self::$name(fields) => Parts::payload(fields),)+)+ }
            }

            /// Appends the encoded control part to `bytes`.
            pub(super) fn append_control(&self, bytes: &mut Vec<u8>) {
                match self { $($(Self::$name(fields) => fields.append_control(bytes),)+)+ }
            }

            /// Assembles a message from its parts. A payload is malformed if the kind has none, and
            /// so is an encoded gradient of more than `most_values` values.
            pub(super) fn of_parts(
                kind: Kind,
                control: &[u8],
                payload: Received,
                most_values: usize,
            ) -> Result<Self, Malformed> {
                Ok(match kind {$($(
                    Kind::$name => Self::$name(Parts::of_parts(control, payload, most_values)?),
                )+)+})
            }
        }

        $($(split!($type $({ $($field),+; $payload: $content })? $(: $own)?);)+)+
    };
}

/// Implements `Parts` for the type of one entry of the table.
macro_rules! split {
    ($type:ty) => {
        impl Parts for $type {
            const CONTENT: Option<Content> = None;

            fn append_control(&self, bytes: &mut Vec<u8>) {
                codec::append(self, bytes);
            }

            fn payload(&self) -> Payload<'_> {
                Payload::NONE
            }

            fn of_parts(control: &[u8], payload: Received, _: usize) -> Result<Self, Malformed> {
                if payload.is_empty() { codec::read(control) } else { Err(Malformed) }
            }
        }
    };
    ($type:ty { $($field:ident),+; $payload:ident: $content:expr }) => {
        impl Parts for $type {
            const CONTENT: Option<Content> = Some($content);

            fn append_control(&self, bytes: &mut Vec<u8>) {
                codec::append(&($(&self.$field,)+), bytes);
            }

            fn payload(&self) -> Payload<'_> {
                self.$payload.payload()
            }

            fn of_parts(control: &[u8], payload: Received, _: usize) -> Result<Self, Malformed> {
                let ($($field,)+) = codec::read(control)?;
                Ok(Self { $($field,)+ $payload: PayloadField::of_received(payload)? })
            }
        }
    };
    ($type:ty: Parts) => {};
}

pub(super) use {messages, split};
