//! Validation: what is known of a job beforehand, against what it does.

mod closed_form;
