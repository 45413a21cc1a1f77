#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    (txn_fuzz::target("tls_framing")
        .expect("it is in the table")
        .run)(data);
});
