//! Kernels over crates that were not written for a GPU; the host runs the same bodies in a loop.
#![cfg_attr(target_arch = "nvptx64", no_std, feature(abi_ptx, stdarch_nvptx))]

use core::hash::Hasher;

/// Bytes of input that belong to a thread.
const CHUNK: usize = 64;

/// `kernel!(name, |at, bytes| value)`: `out[at] = value` for every thread `at`, a u64 each.
macro_rules! kernel {
    ($name:ident, |$at:ident, $bytes:ident| $value:expr) => {
        #[cfg(target_arch = "nvptx64")]
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn $name(bytes: *const u8, len: usize, out: *mut u64, threads: usize) {
            use core::arch::nvptx::{_block_dim_x, _block_idx_x, _thread_idx_x};
            unsafe {
                let $at = (_block_idx_x() * _block_dim_x() + _thread_idx_x()) as usize;
                if $at < threads {
                    let $bytes = core::slice::from_raw_parts(bytes, len);
                    *out.add($at) = (|| -> u64 { $value })();
                }
            }
        }

        #[cfg(not(target_arch = "nvptx64"))]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(bytes: *const u8, len: usize, out: *mut u64, threads: usize) {
            let $bytes = unsafe { core::slice::from_raw_parts(bytes, len) };
            for $at in 0..threads {
                unsafe { *out.add($at) = (|| -> u64 { $value })() };
            }
        }
    };
}

fn real(bytes: &[u8], at: usize) -> f64 {
    f64::from(bytes[at * CHUNK]) * 0.37 + (at % 50) as f64
}

fn chunk(bytes: &[u8], at: usize) -> &[u8] {
    &bytes[at * CHUNK..(at + 1) * CHUNK]
}

fn first_word(digest: &[u8]) -> u64 {
    u64::from_le_bytes(digest[..8].try_into().unwrap())
}

kernel!(float_functions, |at, bytes| {
    let x = real(bytes, at);
    (libm::sin(x) + libm::exp(x) * libm::pow(x, 1.7) + libm::lgamma(x)).to_bits()
});
kernel!(float_functions_32, |at, bytes| {
    let x = real(bytes, at) as f32;
    u64::from((libm::sinf(x) + libm::expf(x) * libm::powf(x, 1.7) + libm::tgammaf(x)).to_bits())
});
kernel!(sha_256, |at, bytes| {
    use sha2::Digest;
    first_word(&sha2::Sha256::digest(chunk(bytes, at)))
});
kernel!(sha_3, |at, bytes| {
    use sha3::Digest;
    first_word(&sha3::Sha3_256::digest(chunk(bytes, at)))
});
kernel!(md5_digest, |at, bytes| first_word(&md5::compute(chunk(bytes, at))[..]));
kernel!(siphash, |at, bytes| {
    let mut hasher = siphasher::sip::SipHasher13::new_with_keys(at as u64, 7);
    hasher.write(chunk(bytes, at));
    hasher.finish()
});
kernel!(chacha, |at, _bytes| {
    use rand_core::{RngCore, SeedableRng};
    let mut source = rand_chacha::ChaCha20Rng::seed_from_u64(at as u64);
    source.next_u64() ^ source.next_u64()
});
kernel!(pcg, |at, _bytes| {
    use rand_core::{RngCore, SeedableRng};
    rand_pcg::Pcg64::seed_from_u64(at as u64).next_u64()
});
kernel!(xoshiro, |at, _bytes| {
    use rand_core::{RngCore, SeedableRng};
    rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(at as u64).next_u64()
});
kernel!(distributions, |at, _bytes| {
    use rand_core::SeedableRng;
    use rand_distr::Distribution;
    let mut source = rand_pcg::Pcg32::seed_from_u64(at as u64);
    let gamma = rand_distr::Gamma::new(2.5f64, 1.25).unwrap();
    let normal = rand_distr::Normal::new(0.0f64, 1.0).unwrap();
    (gamma.sample(&mut source) + normal.sample(&mut source)).to_bits()
});
kernel!(ranges, |at, bytes| {
    use rand::Rng;
    use rand_core::SeedableRng;
    let mut source = rand_xoshiro::Xoshiro128PlusPlus::seed_from_u64(at as u64);
    (0..bytes[at * CHUNK]).map(|_| source.gen_range(0u64..1000) + u64::from(source.gen_bool(0.3))).sum()
});
kernel!(crc_32, |at, bytes| {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(chunk(bytes, at));
    hasher.finalize().into()
});
kernel!(xxhash_64, |at, bytes| xxhash_rust::xxh64::xxh64(chunk(bytes, at), at as u64));
kernel!(xxhash_3, |at, bytes| xxhash_rust::xxh3::xxh3_64(&bytes[at * CHUNK..at * CHUNK + 300]));
kernel!(half_floats, |at, bytes| {
    let a = half::f16::from_f64(real(bytes, at));
    let b = half::bf16::from_f64(real(bytes, at + 1));
    (a.to_f64() * b.to_f64()).to_bits()
});
kernel!(mandelbrot, |at, bytes| {
    let c = num_complex::Complex64::new(real(bytes, at) * 1e-2 - 1.0, real(bytes, at + 1) * 1e-2 - 0.5);
    let (mut z, mut rounds) = (c, 0u64);
    while z.norm() < 2.0 && rounds < 256 {
        z = z * z + c;
        rounds += 1;
    }
    rounds ^ z.exp().re.to_bits()
});
kernel!(shortest_float, |at, bytes| {
    let mut buffer = ryu::Buffer::new();
    let text = buffer.format(f64::from_bits(first_word(chunk(bytes, at))));
    text.bytes().fold(0, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(byte.into()))
});
kernel!(integer_text, |at, bytes| {
    let mut buffer = itoa::Buffer::new();
    let text = buffer.format((real(bytes, at) * 1e6) as i64 - 20_000_000);
    text.bytes().fold(0, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(byte.into()))
});
kernel!(memory_search, |at, bytes| {
    let bytes = chunk(bytes, at);
    memchr::memmem::find(bytes, b"gpu").unwrap_or(99) as u64 * 100 + memchr::memchr2(1, 2, bytes).unwrap_or(98) as u64
});
kernel!(inflate, |at, bytes| {
    use miniz_oxide::inflate::core::{DecompressorOxide, decompress};
    let mut out = [0; 512];
    let (status, read, written) = decompress(&mut DecompressorOxide::new(), chunk(bytes, at), &mut out, 0, 4);
    let sum: u64 = out[..written].iter().map(|&byte| u64::from(byte)).sum();
    (status as i8 as u64).wrapping_add((read * 1000 + written) as u64) ^ sum << 32
});
kernel!(binary_parser, |at, bytes| {
    fn number(input: &[u8]) -> nom::IResult<&[u8], u32> {
        nom::number::complete::be_u32(input)
    }
    fn pair(input: &[u8]) -> nom::IResult<&[u8], (u32, u32)> {
        nom::sequence::separated_pair(number, nom::bytes::complete::tag(b","), number)(input)
    }
    match pair(chunk(bytes, at)) {
        Ok((_, (a, b))) => u64::from(a) + u64::from(b),
        Err(_) => 0,
    }
});
kernel!(float_parser, |at, bytes| {
    match nom::number::complete::recognize_float::<&[u8], nom::error::Error<&[u8]>>(chunk(bytes, at)) {
        Ok((rest, _)) => rest.len() as u64,
        Err(_) => 1,
    }
});
kernel!(text_to_float, |at, bytes| {
    match core::str::from_utf8(&chunk(bytes, at)[..16]) {
        Ok(text) => text.trim().parse::<f64>().unwrap_or(0.5).to_bits(),
        Err(error) => error.valid_up_to() as u64,
    }
});
kernel!(hexadecimal, |at, bytes| {
    let mut out = [0; 32];
    u64::from(hex::decode_to_slice(chunk(bytes, at), &mut out).is_ok()) + 2 * first_word(&out[8..]) / 3
});
kernel!(base_64, |at, bytes| {
    let mut out = [0; 96];
    let written = base64::encode_config_slice(chunk(bytes, at), base64::STANDARD, &mut out);
    let mut back = [0; 96];
    let read = base64::decode_config_slice(chunk(bytes, at), base64::STANDARD, &mut back).unwrap_or(7);
    written as u64 ^ first_word(&out[40..]) ^ first_word(&back) ^ read as u64
});
kernel!(sorting, |at, bytes| {
    let mut items: arrayvec::ArrayVec<u8, 64> = chunk(bytes, at).iter().copied().collect();
    items.sort_unstable();
    u64::from(items[at & 63]) | u64::from(adler::adler32_slice(&items)) << 8
});
kernel!(formatting, |at, bytes| {
    use core::fmt::Write;
    let mut text = arrayvec::ArrayString::<128>::new();
    let _ = write!(text, "{} {:?} {:08.3}", at, bytes[at * CHUNK], real(bytes, at));
    text.bytes().fold(0, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(byte.into()))
});
