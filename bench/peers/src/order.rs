//! What every flow does.

use serde::{Deserialize, Serialize};

/// The names of its steps, in their order. Each writes one line.
pub const STEPS: [&str; 3] = ["reserve", "charge", "record"];

/// The input of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Which flow it is: no two have the same.
    pub number: i64,
    /// What its lines hold.
    pub amount: i64,
}

/// What a flow returns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// Which order it is for.
    pub id: String,
    /// How it went.
    pub status: String,
    /// The order.
    pub order: Order,
}

impl Order {
    /// The order with this number.
    pub fn numbered(number: u64) -> Order {
        Order { number: number.cast_signed(), amount: 42 }
    }

    /// What its flow returns.
    pub fn receipt(self) -> Receipt {
        Receipt { id: format!("or_{:016}", self.number), status: "completed".to_owned(), order: self }
    }
}
