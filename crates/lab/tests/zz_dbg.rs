use link::tls::*;
use link::*;
#[test]
fn tls() {
    let forge = Forge::new([2; 32], 1_700_000_000).unwrap();
    let cfg = TlsConfigs::new(&forge).unwrap();
    let mut c = Session::client(&cfg, "127.0.0.1".parse().unwrap()).unwrap();
    let mut s = Session::server(&cfg).unwrap();
    for round in 0..10 {
        for _ in 0..3 {
        let r = c.process(&mut |p| println!("c got {}", p.len()));
        println!("{round} c {r:?} pending {} est {}", c.pending().len(), c.is_established());}
        let p = c.pending().to_vec(); c.advance(p.len());
        s.read_space()[..p.len()].copy_from_slice(&p); s.commit(p.len());
        for _ in 0..3 {
        let r = s.process(&mut |p| println!("s got {}", p.len()));
        println!("{round} s {r:?} pending {} est {}", s.pending().len(), s.is_established());}
        let p = s.pending().to_vec(); s.advance(p.len());
        c.read_space()[..p.len()].copy_from_slice(&p); c.commit(p.len());
        if round == 4 { println!("{:?}", c.encrypt(b"hello")); println!("{:?}", s.encrypt(b"hello2")); }
    }
    panic!();
}
