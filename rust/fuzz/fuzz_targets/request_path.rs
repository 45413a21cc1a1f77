#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    (txn_fuzz::target("request_path")
        .expect("it is in the table")
        .run)(data);
});
