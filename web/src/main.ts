import { mount } from "svelte";
import Page from "./components/Page.svelte";
import { App } from "./state/app.svelte";
import { preferences } from "./state/preferences.svelte";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/prose.css";

preferences.restore();

const address = new URL("/v1/responses", location.href);
address.protocol = address.protocol.replace("http", "ws");

const app = new App(address.href);
mount(Page, { target: document.getElementById("app")!, props: { app } });
app.start();
