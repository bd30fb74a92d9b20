//! The library's interface, as a text: a change of it shows in a diff of `data/public-api.rs`, and is never by accident.
//!
//! The text is what stands in the sources, without bodies and comments. It does not show what no source says: which types
//! threads may share (asserted below), what derives and macros expand to (the words of `Reason` are listed), and whether
//! something still does what it did. After an intended change: `LEASEHOLD_WRITE_API=1 cargo test --test public_api`, and
//! a line in CHANGELOG.md.

use std::collections::BTreeSet;
use std::path::Path;

use syn::visit_mut::VisitMut;
use syn::{Attribute, Block, Fields, File, Ident, ImplItem, Item, ItemMod, Type, UseTree, Visibility};

/// Leaves what a caller depends on.
struct Strip;

impl VisitMut for Strip {
    fn visit_attributes_mut(&mut self, attributes: &mut Vec<Attribute>) {
        attributes.retain(|attribute| {
            let kept = ["cfg", "derive", "must_use", "non_exhaustive"];
            kept.iter().any(|kept| attribute.path().is_ident(kept))
        });
    }

    fn visit_block_mut(&mut self, body: &mut Block) {
        body.stmts.clear();
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// The name of a public item.
fn name(item: &Item) -> Option<&Ident> {
    let (visibility, name) = match item {
        Item::Const(item) => (&item.vis, &item.ident),
        Item::Enum(item) => (&item.vis, &item.ident),
        Item::Fn(item) => (&item.vis, &item.sig.ident),
        Item::Struct(item) => (&item.vis, &item.ident),
        Item::Trait(item) => (&item.vis, &item.ident),
        Item::Type(item) => (&item.vis, &item.ident),
        _ => return None,
    };
    is_public(visibility).then_some(name)
}

/// What of a module's item a caller sees. `is_out`: whether a name can be used outside.
fn interface(mut item: Item, is_out: impl Fn(&Ident) -> bool) -> Option<Item> {
    match &mut item {
        Item::Impl(block) => {
            let Type::Path(of) = &*block.self_ty else { return None };
            if !is_out(&of.path.segments.last()?.ident) {
                return None;
            }
            let of_a_trait = block.trait_.is_some();
            block.items.retain(|item| match item {
                ImplItem::Const(item) => is_public(&item.vis),
                ImplItem::Fn(item) => is_public(&item.vis),
                // As the error of a conversion.
                item => of_a_trait && matches!(item, ImplItem::Type(_)),
            });
            if !of_a_trait && block.items.is_empty() {
                return None;
            }
        }
        named => {
            if !is_out(name(named)?) {
                return None;
            }
            if let Item::Struct(item) = named {
                match &mut item.fields {
                    Fields::Named(fields) => {
                        let all = std::mem::take(&mut fields.named);
                        fields.named = all.into_iter().filter(|field| is_public(&field.vis)).collect();
                    }
                    // One that is private is shown as `()`: its place counts.
                    fields => {
                        let private = fields.iter_mut().filter(|field| !is_public(&field.vis));
                        private.for_each(|field| field.ty = syn::parse_quote!(()));
                    }
                }
            }
        }
    }
    Some(item)
}

/// The names that a `pub use module::{…}` gives out.
fn given_out(tree: &UseTree, names: &mut BTreeSet<String>) {
    match tree {
        UseTree::Path(path) => given_out(&path.tree, names),
        UseTree::Group(group) => group.items.iter().for_each(|tree| given_out(tree, names)),
        UseTree::Name(name) => drop(names.insert(name.ident.to_string())),
        UseTree::Rename(_) | UseTree::Glob(_) => panic!("this test has to learn what such a `pub use` gives out"),
    }
}

fn parse(module: &str) -> Vec<Item> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(module);
    let path = match folder.is_dir() {
        true => folder.join("mod.rs"),
        false => folder.with_extension("rs"),
    };
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let file = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    file.items
}

fn print(items: Vec<Item>) -> String {
    let mut file: File = syn::parse_quote!();
    file.items = items;
    Strip.visit_file_mut(&mut file);
    prettyplease::unparse(&file)
}

/// The whole interface: the crate's root, then module by module.
fn public_api() -> String {
    let (mut shown, mut modules, mut names) = (Vec::new(), Vec::new(), BTreeSet::new());
    // What only fuzzing sees is no interface.
    let is_fuzzing = |item: &Item| matches!(item, Item::Mod(item) if item.ident == "fuzzing");
    for item in parse("lib").into_iter().filter(|item| !is_fuzzing(item)) {
        match &item {
            Item::Use(item) if is_public(&item.vis) => given_out(&item.tree, &mut names),
            Item::Mod(item) => modules.push(item.clone()),
            _ => {}
        }
        match &item {
            Item::Use(syn::ItemUse { vis, .. }) | Item::Mod(ItemMod { vis, .. }) if is_public(vis) => shown.push(item),
            _ => {}
        }
    }
    let mut text = print(shown);
    // Nothing of the platform's is given out.
    for module in modules.iter().filter(|module| module.ident != "platform") {
        let items = parse(&module.ident.to_string());
        let mut out = names.clone();
        if is_public(&module.vis) {
            out.extend(items.iter().filter_map(name).map(Ident::to_string));
        }
        let is_out = |name: &Ident| out.contains(&name.to_string());
        let shown: Vec<Item> = items.into_iter().filter_map(|item| interface(item, is_out)).collect();
        if !shown.is_empty() {
            text += &format!("\n// {}\n\n{}", module.ident, print(shown));
        }
    }
    text += "\n// Reasons, and the verdicts that they stand for\n\n";
    for reason in leasehold::Reason::ALL {
        text += &format!("// {reason:?} = {reason} ({})\n", reason.verdict());
    }
    text
}

#[test]
fn the_interface_changes_on_purpose_only() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/public-api.rs");
    let now = public_api();
    if std::env::var_os("LEASEHOLD_WRITE_API").is_some() {
        std::fs::write(&path, &now).unwrap();
    }
    let before = std::fs::read_to_string(&path).unwrap_or_default();
    let pairs = (now.lines().map(Some).chain([None])).zip(before.lines().map(Some).chain([None]));
    for (at, (now, before)) in pairs.enumerate() {
        assert_eq!(
            now,
            before,
            "the interface changed, in line {} of {}; if that is meant: LEASEHOLD_WRITE_API=1 cargo test --test public_api",
            at + 1,
            path.display()
        );
    }
}

/// What threads may do with the types, which no source says.
#[test]
fn types_may_go_between_threads() {
    fn shared<T: Send + Sync>() {}
    fn moved<T: Send>() {}
    shared::<leasehold::Error>();
    shared::<leasehold::Facts>();
    shared::<leasehold::Holder>();
    shared::<leasehold::Judge>();
    shared::<leasehold::Judgement>();
    shared::<leasehold::Lease>();
    shared::<leasehold::Record>();
    shared::<leasehold::Scan>();
    shared::<leasehold::Stop>();
    moved::<leasehold::Claim>();
}
